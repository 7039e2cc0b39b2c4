// torchlib/library.cpp - libcontinuo_torch.so: TorchScript, and packages of AOTInductor, behind the C
// table of torchlib/abi.h.
//
// Every entry catches everything. State is the caller's: what a module keeps in attributes is set
// before a run and read after it. Worker's thread.
#include "torchlib/abi.h"

#include <dlfcn.h>
#include <sys/utsname.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <torch/csrc/jit/passes/tensorexpr_fuser.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>
#include <torch/cuda.h>
#include <torch/version.h>

// Loaders of packages came with PyTorch 2.6; the check of their CPU before loading later.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 10)
#define CTT_PACKAGES 1
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#endif

namespace {

using c10::IValue;
using c10::TypeKind;

// The v2 protocol's numbers, from proto/datatypes.def; types that TorchScript has no use for are left out.
struct DataType {
    int32_t number;
    at::ScalarType type;
};
const DataType data_types[] = {{1, at::kBool},   {2, at::kByte},  {6, at::kChar},
                               {7, at::kShort},  {8, at::kInt},   {9, at::kLong},
                               {10, at::kHalf},  {11, at::kFloat}, {12, at::kDouble},
                               {14, at::kBFloat16}};

// What the last line of a message says is its cause; the front is the interpreter's trace.
void
say(char *error, size_t n, const std::string &text)
{
    size_t from = text.size() >= n ? text.size() - n + 1 : 0;

    if (n == 0)
        return;
    std::memcpy(error, text.data() + from, text.size() - from);
    error[text.size() - from] = '\0';
}

template <typename Body>
int
guarded(char *error, size_t n, Body body) noexcept
{
    try {
        c10::InferenceMode inference;

        body();
        return 0;
    } catch (const c10::Error &e) {
        // Without libtorch's own C++ stack, which is no help to a model's author.
        say(error, n, e.what_without_backtrace());
    } catch (const std::exception &e) {
        say(error, n, e.what());
    } catch (...) {
        say(error, n, "an exception that is no std::exception");
    }
    return -1;
}

at::ScalarType
scalar_type(int32_t number)
{
    for (const auto &known : data_types)
        if (known.number == number)
            return known.type;
    throw std::runtime_error("TorchScript has no data type for number " + std::to_string(number));
}

int32_t
data_type(at::ScalarType type)
{
    for (const auto &known : data_types)
        if (known.type == type)
            return known.number;
    throw std::runtime_error(std::string("a tensor of ") + c10::toString(type) +
                             " cannot leave the model");
}

// A copy: a module may keep what it was given, or a view of it, in an attribute.
at::Tensor
tensor_from(const ctt_tensor &from, at::Device device)
{
    if (from.rank < 0 || from.rank > CTT_RANK_MAX)
        throw std::runtime_error("a tensor of rank " + std::to_string(from.rank));
    auto tensor = torch::from_blob(from.data, at::IntArrayRef(from.dims, from.rank),
                                   at::TensorOptions().dtype(scalar_type(from.datatype)));
    return device.is_cpu() ? tensor.clone() : tensor.to(device);
}

// `keep` holds what `out` points to.
void
tensor_to(const at::Tensor &from, at::Tensor &keep, ctt_tensor *out)
{
    if (!from.defined())
        throw std::runtime_error("a tensor without a value");
    if (from.dim() > CTT_RANK_MAX)
        throw std::runtime_error("a tensor of rank " + std::to_string(from.dim()));
    keep = from.is_cpu() ? from : from.to(at::kCPU);
    if (!keep.is_contiguous()) // asked first: contiguous() is a call through the dispatcher
        keep = keep.contiguous();
    out->data = keep.data_ptr();
    out->rank = static_cast<int32_t>(keep.dim());
    out->datatype = data_type(keep.scalar_type());
    std::copy(keep.sizes().begin(), keep.sizes().end(), out->dims);
}

IValue
value_from(const ctt_value &from, at::Device device)
{
    switch (from.kind) {
    case CTT_TENSOR:
        return tensor_from(from.tensor, device);
    case CTT_INT:
        return from.integer;
    case CTT_FLOAT:
        return from.number;
    case CTT_BOOL:
        return from.integer != 0;
    }
    throw std::runtime_error("a value of an unknown kind");
}

std::string
count_of(size_t n, const char *what)
{
    return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

// Numbers follow the type that the method wants: 16000 may be meant as a float.
IValue
scalar_as(const IValue &value, const c10::TypePtr &type)
{
    if (type->kind() == TypeKind::FloatType && value.isInt())
        return static_cast<double>(value.toInt());
    if (type->kind() == TypeKind::TensorType && !value.isTensor())
        return value.isInt() ? at::scalar_tensor(value.toInt(), at::kLong)
                             : value.isBool() ? at::scalar_tensor(value.toBool(), at::kBool)
                                              : at::scalar_tensor(value.toDouble(), at::kFloat);
    if (type->kind() == TypeKind::IntType && value.isTensor() && value.toTensor().numel() == 1)
        return value.toTensor().item().toLong();
    return value;
}

void
flatten(const IValue &value, std::vector<at::Tensor> &out)
{
    if (value.isTensor()) {
        out.push_back(value.toTensor());
    } else if (value.isTuple()) {
        for (const auto &member : value.toTupleRef().elements())
            flatten(member, out);
    } else if (value.isList()) {
        for (const IValue &member : value.toListRef())
            flatten(member, out);
    } else if (value.isInt()) {
        out.push_back(at::scalar_tensor(value.toInt(), at::kLong));
    } else if (value.isDouble()) {
        out.push_back(at::scalar_tensor(value.toDouble(), at::kDouble));
    } else if (value.isBool()) {
        out.push_back(at::scalar_tensor(value.toBool(), at::kBool));
    } else if (!value.isNone()) {
        throw std::runtime_error("the method gives a " + value.tagKind() +
                                 "; tensors, and tuples and lists of them, can be served");
    }
}

} // namespace

struct ctt_model {
    at::Device device;
    torch::jit::Module module; // the submodule whose method runs
    std::optional<torch::jit::Method> method;
#ifdef CTT_PACKAGES
    std::unique_ptr<torch::inductor::AOTIModelPackageLoader> package; // instead of the two
#endif
    std::string schema;
    std::vector<at::Tensor> room; // by argument; of model_room()
    std::vector<at::Tensor> results;
    std::map<std::string, at::Tensor> attributes;
};

namespace {

torch::jit::Module
find_submodule(torch::jit::Module module, const std::string &path)
{
    for (size_t at = 0; at < path.size();) {
        size_t dot = std::min(path.find('.', at), path.size());
        std::string name = path.substr(at, dot - at), have;
        bool found = false;

        for (const auto &child : module.named_children()) {
            have += have.empty() ? child.name : ", " + child.name;
            if (child.name == name) {
                module = child.value;
                found = true;
                break;
            }
        }
        if (!found)
            throw std::runtime_error("there is no submodule " + path +
                                     (have.empty() ? "" : "; there are: " + have));
        at = dot + 1;
    }
    return module;
}

torch::jit::Method
find_method(const torch::jit::Module &module, const std::string &name)
{
    std::string have;

    if (auto method = module.find_method(name))
        return *method;
    for (const auto &method : module.get_methods())
        have += have.empty() ? method.name() : ", " + method.name();
    throw std::runtime_error("there is no method " + name + (have.empty() ? "" : "; there are: " + have));
}

// Without self, whose type is a mangled name.
std::string
schema_text(const torch::jit::Method &method)
{
    const auto &schema = method.function().getSchema();
    std::string text = schema.name() + "(", results;

    for (size_t i = 1; i < schema.arguments().size(); i++)
        text += (i > 1 ? ", " : "") + schema.arguments()[i].type()->annotation_str() + " " +
                schema.arguments()[i].name();
    for (const auto &result : schema.returns())
        results += (results.empty() ? "" : ", ") + result.type()->annotation_str();
    return text + ") -> " + results;
}

// The CUDA part of libtorch is opened when somebody wants it, and never linked.
at::Device
find_device(const std::string &name)
{
    at::Device device(name);

    if (!device.is_cuda())
        return device;
    if (!dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL))
        throw std::runtime_error("this libtorch " TORCH_VERSION " is a build for the CPU, without libtorch_cuda.so: "
                                 "deviceType gpu needs a CUDA build of PyTorch");
    int count = torch::cuda::device_count();
    if (count == 0)
        throw std::runtime_error("there is no CUDA device: no driver, or CUDA_VISIBLE_DEVICES hides them");
    if (device.index() >= count)
        throw std::runtime_error("there is no device " + name + ", but " + count_of(count, "CUDA device"));
    return device;
}

#ifdef CTT_PACKAGES
bool
cpu_has(const std::string &isa)
{
#if defined(__x86_64__)
    if (isa == "AVX512")
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (isa == "AVX2")
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    // The others are of this machine's kind or have no instructions of their own, unless we know better.
    return isa.empty() || isa == "INVALID" || isa == "ASIMD" || isa == "NEON" || isa == "SVE256";
}

// What is compiled for another machine would end the process with SIGILL.
void
check_package(const std::string &file)
{
    auto about = torch::inductor::AOTIModelPackageLoader::load_metadata_from_package(file, "model");
    std::string machine = about["AOTI_MACHINE"], isa = about["AOTI_CPU_ISA"], device = about["AOTI_DEVICE_KEY"];
    utsname here;

    if (!device.empty() && device != "cpu")
        throw std::runtime_error("the package is for " + device + ", and packages run on the CPU here");
    if (uname(&here) == 0 && !machine.empty() && machine != here.machine)
        throw std::runtime_error("the package is for " + machine + ", this machine is " + here.machine);
    if (!cpu_has(isa))
        throw std::runtime_error("the package is for CPUs with " + isa + ", which this one has not: compile it on "
                                 "a machine like this");
}

ctt_model *
load_package(const ctt_options *options, at::Device device)
{
    if (*options->submodule || std::strcmp(options->method, "forward") != 0)
        throw std::runtime_error("a package has one method, forward, and no submodules");
    if (!device.is_cpu())
        throw std::runtime_error("packages run on the CPU here");
    check_package(options->file);
    auto package = std::make_unique<torch::inductor::AOTIModelPackageLoader>(options->file, "model", true);
    return new ctt_model{device, {}, std::nullopt, std::move(package), "forward of a package of AOTInductor", {}, {}, {}};
}
#endif

ctt_model *
new_model(at::Device device, const torch::jit::Module &module, const torch::jit::Method &method)
{
    return new ctt_model{device,
                         module,
                         method,
#ifdef CTT_PACKAGES
                         nullptr,
#endif
                         schema_text(method),
                         {},
                         {},
                         {}};
}

bool
is_package(const std::string &file)
{
    return file.size() > 4 && file.compare(file.size() - 4, 4, ".pt2") == 0;
}

ctt_model *
load_any(const ctt_options *options)
{
    at::Device device = find_device(options->device);

    if (is_package(options->file)) {
#ifdef CTT_PACKAGES
        return load_package(options, device);
#else
        throw std::runtime_error("libtorch " TORCH_VERSION " has no packages of AOTInductor; 2.10 has");
#endif
    }
    auto module = torch::jit::load(options->file, device);
    module.eval();
    module = find_submodule(module, options->submodule);
    return new_model(device, module, find_method(module, options->method));
}

int
model_load(const ctt_options *options, ctt_model **out, char *error, size_t n)
{
    return guarded(error, n, [&] {
        // Compiling chains of operators costs the first calls 0.2 s and gains nothing for small steps.
        if (!options->fusion) {
            torch::jit::FusionStrategy none;

            torch::jit::setTensorExprFuserEnabled(false);
            torch::jit::setFusionStrategy(none);
        }
        at::set_num_threads(options->threads);
        *out = load_any(options);
    });
}

void
model_unload(ctt_model *model)
{
    char error[256];

    guarded(error, sizeof(error), [&] { delete model; });
}

const char *
model_schema(ctt_model *model)
{
    return model->schema.c_str();
}

int
model_set_attribute(ctt_model *model, const char *name, const ctt_value *value, char *error, size_t n)
{
    return guarded(error, n, [&] {
        if (!model->module.hasattr(name))
            throw std::runtime_error(std::string("there is no attribute ") + name);
        auto type = model->module.type()->getAttribute(name);
        if (type->kind() == TypeKind::OptionalType)
            type = type->expectRef<c10::OptionalType>().getElementType();
        model->module.setattr(name, scalar_as(value_from(*value, model->device), type));
    });
}

int
model_get_attribute(ctt_model *model, const char *name, ctt_tensor *out, char *error, size_t n)
{
    return guarded(error, n, [&] {
        if (!model->module.hasattr(name))
            throw std::runtime_error(std::string("there is no attribute ") + name);
        IValue value = model->module.attr(name);
        if (!value.isTensor())
            throw std::runtime_error(std::string("the attribute ") + name + " is a " + value.tagKind() +
                                     " and no tensor");
        tensor_to(value.toTensor(), model->attributes[name], out);
    });
}

// The memory of the run before serves again, unless somebody still holds the tensor or a view of it (the
// module in an attribute, a result), or the method has made something else of it in place.
bool
serves_again(const at::Tensor &tensor, const ctt_tensor &like)
{
    return tensor.defined() && tensor.use_count() == 1 && tensor.storage().use_count() == 1 &&
           tensor.is_contiguous() && tensor.scalar_type() == scalar_type(like.datatype) &&
           tensor.sizes() == at::IntArrayRef(like.dims, like.rank);
}

int
model_room(ctt_model *model, uint32_t i, ctt_tensor *tensor, char *error, size_t n)
{
    return guarded(error, n, [&] {
        if (tensor->rank < 0 || tensor->rank > CTT_RANK_MAX)
            throw std::runtime_error("a tensor of rank " + std::to_string(tensor->rank));
        if (i >= model->room.size())
            model->room.resize(i + 1);
        if (!serves_again(model->room[i], *tensor))
            model->room[i] = at::empty(at::IntArrayRef(tensor->dims, tensor->rank),
                                       at::TensorOptions().dtype(scalar_type(tensor->datatype)));
        tensor->data = model->room[i].data_ptr();
    });
}

// What a run was given, from the front on.
struct given {
    ctt_model *model;
    const ctt_value *begin, *at, *end;
};

IValue
take_one(given &given)
{
    size_t i = given.at - given.begin;
    const ctt_value &value = *given.at++;
    const auto &room = given.model->room;

    if (value.kind == CTT_TENSOR && i < room.size() && room[i].defined() &&
        room[i].data_ptr() == value.tensor.data)
        return given.model->device.is_cpu() ? room[i] : room[i].to(given.model->device);
    return value_from(value, given.model->device);
}

// Takes the arguments that one parameter of this type needs.
IValue
take(const c10::TypePtr &type, given &given)
{
    if (type->kind() == TypeKind::OptionalType)
        return take(type->expectRef<c10::OptionalType>().getElementType(), given);
    if (type->kind() == TypeKind::TupleType) {
        std::vector<IValue> members;

        for (const auto &member : type->expectRef<c10::TupleType>().elements())
            members.push_back(take(member, given));
        return c10::ivalue::Tuple::create(std::move(members));
    }
    if (type->kind() == TypeKind::ListType) { // the rest
        c10::List<at::Tensor> members;

        while (given.at < given.end)
            members.push_back(take_one(given).toTensor());
        return members;
    }
    if (given.at == given.end)
        throw std::runtime_error("the method takes more arguments");
    return scalar_as(take_one(given), type);
}

// What a method takes, where somebody asks. A GPU is done when its results are here, so there the time
// goes on until stop() is called for the second time.
class stopwatch {
  public:
    stopwatch(const ctt_model *model, uint64_t *ns)
        : ns_(ns), real_(!model->device.is_cpu() || at::get_num_threads() > 1)
    {
    }
    void
    start()
    {
        begun_ = ns_ ? now() : 0;
    }
    void
    stop()
    {
        if (ns_)
            *ns_ = now() - begun_;
    }

  private:
    uint64_t
    now() const
    {
        timespec at;

        clock_gettime(real_ ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &at);
        return static_cast<uint64_t>(at.tv_sec) * 1000000000 + static_cast<uint64_t>(at.tv_nsec);
    }

    uint64_t *ns_, begun_ = 0;
    bool real_;
};

void
run_method(given given, stopwatch &watch)
{
    ctt_model *model = given.model;
    const auto &wanted = model->method->function().getSchema().arguments();
    std::vector<IValue> stack;

    stack.reserve(wanted.size()); // and one more, the module itself
    for (size_t i = 1; i < wanted.size() && (given.at < given.end || !wanted[i].default_value()); i++)
        stack.push_back(take(wanted[i].type(), given));
    if (given.at < given.end)
        throw std::runtime_error("the method takes fewer arguments than " +
                                 count_of(given.end - given.begin, "value"));
    watch.start();
    IValue result = (*model->method)(std::move(stack));
    watch.stop();
    flatten(result, model->results);
}

#ifdef CTT_PACKAGES
void
run_package(given given, stopwatch &watch)
{
    std::vector<at::Tensor> inputs;

    while (given.at < given.end) {
        IValue value = take_one(given);
        if (!value.isTensor())
            throw std::runtime_error("a package takes tensors, no numbers (torch.arguments)");
        inputs.push_back(value.toTensor());
    }
    watch.start();
    given.model->results = given.model->package->boxed_run(std::move(inputs));
    watch.stop();
}
#endif

void
run(given given, ctt_tensor *results, uint32_t max_results, uint32_t *n_results, stopwatch watch)
{
    ctt_model *model = given.model;

    model->results.clear();
#ifdef CTT_PACKAGES
    if (model->package)
        run_package(given, watch);
    else
#endif
        run_method(given, watch);
    if (model->results.size() > max_results)
        throw std::runtime_error("the method gives " + count_of(model->results.size(), "tensor"));
    for (size_t i = 0; i < model->results.size(); i++)
        tensor_to(model->results[i], model->results[i], &results[i]);
    if (!model->device.is_cpu())
        watch.stop();
    *n_results = static_cast<uint32_t>(model->results.size());
}

int
model_run(ctt_model *model, const ctt_value *arguments, uint32_t n_arguments, ctt_tensor *results,
          uint32_t max_results, uint32_t *n_results, uint64_t *method_ns, char *error, size_t n)
{
    return guarded(error, n, [&] {
        run({model, arguments, arguments, arguments + n_arguments}, results, max_results, n_results,
            stopwatch(model, method_ns));
    });
}

int
model_method(ctt_model *model, const char *name, ctt_model **out, char *error, size_t n)
{
    return guarded(error, n, [&] {
        if (!model->method)
            throw std::runtime_error("a package has one method, forward");
        *out = new_model(model->device, model->module, find_method(model->module, name));
    });
}

const ctt_api api = {CTT_ABI,
                     sizeof(ctt_api),
                     TORCH_VERSION,
                     model_load,
                     model_unload,
                     model_schema,
                     model_set_attribute,
                     model_get_attribute,
                     model_room,
                     model_run,
                     model_method};

} // namespace

extern "C" __attribute__((visibility("default"))) const ctt_api *
continuo_torch(uint32_t abi)
{
    return abi == CTT_ABI ? &api : nullptr;
}
