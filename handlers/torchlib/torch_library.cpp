// handlers/torchlib/torch_library.cpp - libcontinuo_torch.so: runs TorchScript models and packages
// of AOTInductor behind the C table of handlers/torchlib/torch_abi.h. Worker's thread. Every
// function of the table catches every exception. State belongs to the caller: what a module keeps
// in attributes is set before a run and read after it.
#include "handlers/torchlib/torch_abi.h"

#include <dlfcn.h>
#include <sys/utsname.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/csrc/jit/passes/tensorexpr_fuser.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/cuda.h>
#include <torch/script.h>
#include <torch/version.h>

// The loader of packages came with PyTorch 2.6, and the check of a package's CPU before loading
// came later.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 10)
#define CTT_PACKAGES 1
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#endif

namespace {

using c10::IValue;
using c10::TypeKind;

// The numbers of the v2 protocol, from proto/datatypes.def, without the types that TorchScript
// cannot use.
struct DataType {
    int32_t number;
    at::ScalarType type;
};
const DataType data_types[] = {
    {1, at::kBool}, {2, at::kByte},  {6, at::kChar},   {7, at::kShort},   {8, at::kInt},
    {9, at::kLong}, {10, at::kHalf}, {11, at::kFloat}, {12, at::kDouble}, {14, at::kBFloat16}};

// Copies a message, cut at its front: the last line names the cause, and the front is the
// interpreter's trace.
void
say(char *error, size_t n, const std::string &text)
{
    size_t from = text.size() >= n ? text.size() - n + 1 : 0;

    if (n == 0)
        return;
    while (from > 0 && from < text.size() &&
           (text[from] & 0xc0) == 0x80) // do not begin inside a character
        from++;
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
        // libtorch's own C++ stack is left out, because it does not help a model's author.
        say(error, n, e.what_without_backtrace());
    } catch (const std::exception &e) {
        say(error, n, e.what());
    } catch (...) {
        say(error, n, "an exception that is not a std::exception");
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

// Makes a copy, because a module may keep what it gets, or a view of it, in an attribute.
at::Tensor
tensor_from(const ctt_tensor &from, at::Device device)
{
    if (from.rank < 0 || from.rank > CTT_RANK_MAX)
        throw std::runtime_error("a tensor of rank " + std::to_string(from.rank));
    auto tensor = torch::from_blob(from.data, at::IntArrayRef(from.dims, from.rank),
                                   at::TensorOptions().dtype(scalar_type(from.datatype)));
    return device.is_cpu() ? tensor.clone() : tensor.to(device);
}

// `keep` holds the memory to which `out` points.
void
tensor_to(const at::Tensor &from, at::Tensor &keep, ctt_tensor *out)
{
    if (!from.defined()) { // None
        keep = from;
        *out = ctt_tensor{};
        return;
    }
    if (from.dim() > CTT_RANK_MAX)
        throw std::runtime_error("a tensor of rank " + std::to_string(from.dim()));
    keep = from.is_cpu() ? from : from.to(at::kCPU);
    // A negation or a conjugation may be pending: a bit of the tensor that its memory does not
    // show.
    if (keep.is_neg() || keep.is_conj())
        keep = keep.resolve_neg().resolve_conj();
    if (!keep.is_contiguous()) // saves a call through the dispatcher
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
    case CTT_NONE:
        return IValue();
    }
    throw std::runtime_error("a value of an unknown kind");
}

std::string
count_of(size_t n, const char *what)
{
    return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

// A number is converted to the type that the method wants: 16000 may be meant as a float.
IValue
scalar_as(const IValue &value, const c10::TypePtr &type)
{
    if (type->kind() == TypeKind::FloatType && value.isInt())
        return static_cast<double>(value.toInt());
    if (type->kind() == TypeKind::FloatType && value.isTensor() && value.toTensor().numel() == 1)
        return value.toTensor().item().toDouble();
    if (type->kind() == TypeKind::BoolType && value.isTensor() && value.toTensor().numel() == 1)
        return value.toTensor().item().toBool();
    if (type->kind() == TypeKind::TensorType && !value.isTensor() && !value.isNone())
        return value.isInt()    ? at::scalar_tensor(value.toInt(), at::kLong)
               : value.isBool() ? at::scalar_tensor(value.toBool(), at::kBool)
                                : at::scalar_tensor(value.toDouble(), at::kFloat);
    if (type->kind() == TypeKind::IntType && value.isTensor() && value.toTensor().numel() == 1)
        return value.toTensor().item().toLong();
    return value;
}

IValue
number_of(const at::Scalar &value)
{
    return at::scalar_tensor(value, value.isBoolean()         ? at::kBool
                                    : value.isFloatingPoint() ? at::kDouble
                                                              : at::kLong);
}

// If the method's type is Optional, a None takes its place among the results; otherwise it is left
// out.
void
flatten(const IValue &value, const c10::TypePtr &type, std::vector<at::Tensor> &out)
{
    if (value.isTensor()) {
        out.push_back(value.toTensor());
    } else if (value.isTuple()) {
        const auto &members = value.toTupleRef().elements();
        const auto tuple = type->cast<c10::TupleType>();

        for (size_t i = 0; i < members.size(); i++)
            flatten(members[i], tuple ? tuple->elements()[i] : members[i].type(), out);
    } else if (value.isList()) {
        for (const IValue &member : value.toListRef())
            flatten(member, member.type(), out);
    } else if (value.isInt() || value.isDouble() || value.isBool()) {
        out.push_back(number_of(value.toScalar()).toTensor());
    } else if (value.isNone()) {
        if (type->kind() == TypeKind::OptionalType)
            out.emplace_back();
    } else {
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
    std::unique_ptr<torch::inductor::AOTIModelPackageLoader> package; // instead of those above
#endif
    std::string schema;
    std::vector<at::Tensor> room; // memory of model_room(), by argument
    std::vector<at::Tensor> results;
    std::map<std::string, at::Tensor> attributes;
    std::set<std::string> set;             // attributes that were set from outside
    std::map<std::string, size_t> digests; // digests of model_changed(), by attribute
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
    throw std::runtime_error("there is no method " + name +
                             (have.empty() ? "" : "; there are: " + have));
}

// Leaves out `self`, whose type is a mangled name.
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

// PyTorch tells only that it found no device. The driver tells why.
std::string
why_no_device()
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    if (!driver) {
        const char *why = dlerror();
        return "CUDA's driver cannot be opened: " + std::string(why ? why : "no reason given");
    }
    auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
    auto name = reinterpret_cast<int (*)(int, const char **)>(dlsym(driver, "cuGetErrorName"));
    const int rc = init ? init(0) : 0;
    const char *called = nullptr;

    if (rc == 0)
        return "CUDA_VISIBLE_DEVICES hides them, or this PyTorch needs a newer driver";
    if (name)
        name(rc, &called);
    return "CUDA's driver answers with error " + std::to_string(rc) +
           (called ? " (" + std::string(called) + ")" : std::string());
}

// The CUDA part of libtorch is opened when a model needs it, and never linked.
int
count_devices()
{
    if (!dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL)) {
        const char *why = dlerror();

        throw std::runtime_error(
            "deviceType gpu needs a CUDA build of PyTorch with all the libraries that it brings; "
            "libtorch " TORCH_VERSION " does not open its CUDA part: " +
            std::string(why ? why : "no reason given"));
    }
    int count = torch::cuda::device_count();
    if (count == 0)
        throw std::runtime_error("there is no CUDA device: " + why_no_device());
    return count;
}

at::Device
find_device(const std::string &name)
{
    at::Device device(name);

    if (!device.is_cuda())
        return device;
    int count = count_devices();
    if (device.index() >= count)
        throw std::runtime_error("there is no device " + name + ", but " +
                                 count_of(count, "CUDA device"));
    return device;
}

#ifdef CTT_PACKAGES
// Returns the kernel's words for what this CPU can do.
std::set<std::string>
cpu_flags()
{
    std::ifstream file("/proc/cpuinfo");
    std::set<std::string> flags;
    std::string line, word;

    while (flags.empty() && std::getline(file, line)) {
        if (line.compare(0, 5, "flags") != 0 && line.compare(0, 8, "Features") != 0)
            continue;
        std::istringstream words(line.substr(line.find(':') + 1));
        while (words >> word)
            flags.insert(word);
    }
    return flags;
}

// PyTorch's word for a set of instructions, and the kernel's words for what it needs. For other
// sets PyTorch's word is the kernel's in capitals, such as AVX512_VNNI and AMX_TILE.
const std::map<std::string, std::vector<const char *>> instruction_sets = {
    {"AVX2", {"avx2", "fma"}},
    {"AVX512", {"avx512f", "avx512bw", "avx512dq", "avx512vl", "fma"}},
};

// Returns those of the package's sets that this CPU lacks, with spaces between them.
std::string
cpu_lacks(const std::string &isa)
{
    const std::set<std::string> other = {"INVALID_VEC_ISA", "INVALID", "ASIMD",  "NEON",
                                         "SVE256",          "VSX",     "ZVECTOR"};
    const auto flags = cpu_flags();
    std::istringstream words(isa);
    std::string word, lacks;

    while (words >> word) {
        const auto known = instruction_sets.find(word);
        std::string lower = word;
        bool has = true;

        std::transform(lower.begin(), lower.end(), lower.begin(),
                       [](unsigned char c) { return std::tolower(c); });
        if (known != instruction_sets.end())
            for (const char *flag : known->second)
                has = has && flags.count(flag);
        else
            has =
                flags.count(lower) || other.count(word); // the kind of machine was compared before
        if (!has)
            lacks += (lacks.empty() ? "" : " ") + word;
    }
    return lacks;
}

// Both kinds of packages end in .pt2. A zip file lists its files at its end, and a package has a
// folder of compiled code.
bool
is_exported_program(const std::string &file)
{
    constexpr std::streamoff window = 1 << 20;
    std::ifstream in(file, std::ios::binary | std::ios::ate);
    std::streamoff size = in ? static_cast<std::streamoff>(in.tellg()) : 0,
                   from = std::max<std::streamoff>(0, size - window);
    std::string end(static_cast<size_t>(size - from), '\0');

    in.seekg(from);
    in.read(end.data(), static_cast<std::streamsize>(end.size()));
    return in && end.find("data/aotinductor/") == end.npos &&
           (end.find("models/model.json") != end.npos ||
            end.find("serialized_exported_program") != end.npos);
}

// Refuses code for another machine, which would end the process with SIGILL.
void
check_package(const std::string &file)
{
    if (is_exported_program(file))
        throw std::runtime_error(
            "this is a program of torch.export.save, which is not compiled: compile it with "
            "torch._inductor.aoti_compile_and_package(program, package_path=\"model.pt2\")");
    auto about = torch::inductor::AOTIModelPackageLoader::load_metadata_from_package(file, "model");
    std::string machine = about["AOTI_MACHINE"], isa = about["AOTI_CPU_ISA"],
                device = about["AOTI_DEVICE_KEY"];
    utsname here;

    if (!device.empty() && device != "cpu")
        throw std::runtime_error("the package is for " + device +
                                 ", and packages run on the CPU here");
    if (uname(&here) == 0 && !machine.empty() && machine != here.machine)
        throw std::runtime_error("the package is for " + machine + ", this machine is " +
                                 here.machine);
    std::string lacks = cpu_lacks(isa);
    if (!lacks.empty())
        throw std::runtime_error("the package is for CPUs with " + isa + ", and this one has no " +
                                 lacks + ": compile it on a machine like this");
}

ctt_model *
load_package(const ctt_options *options, at::Device device)
{
    if (*options->submodule || std::strcmp(options->method, "forward") != 0)
        throw std::runtime_error("a package has one method, forward, and no submodules");
    if (!device.is_cpu())
        throw std::runtime_error("packages run on the CPU here");
    check_package(options->file);
    auto package =
        std::make_unique<torch::inductor::AOTIModelPackageLoader>(options->file, "model", true);
    return new ctt_model{device,
                         {},
                         std::nullopt,
                         std::move(package),
                         "forward of a package of AOTInductor",
                         {},
                         {},
                         {},
                         {},
                         {}};
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
        throw std::runtime_error("libtorch " TORCH_VERSION
                                 " has no packages of AOTInductor; 2.10 has");
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
        // Compiling chains of operators costs the first calls 0.2 s and gains nothing for small
        // steps.
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
model_set_attribute(ctt_model *model, const char *name, const ctt_value *value, char *error,
                    size_t n)
{
    return guarded(error, n, [&] {
        if (!model->module.hasattr(name))
            throw std::runtime_error(std::string("there is no attribute ") + name);
        auto type = model->module.type()->getAttribute(name);
        if (type->kind() == TypeKind::OptionalType && value->kind != CTT_NONE)
            type = type->expectRef<c10::OptionalType>().getElementType();
        model->set.insert(name);
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
        if (value.isInt() || value.isDouble() || value.isBool())
            value = number_of(value.toScalar());
        if (!value.isTensor() && !value.isNone())
            throw std::runtime_error(std::string("the attribute ") + name + " is a " +
                                     value.tagKind() +
                                     "; a tensor, an int, a float and a bool can be state");
        tensor_to(value.isNone() ? at::Tensor() : value.toTensor(), model->attributes[name], out);
    });
}

int
model_attribute_kind(ctt_model *model, const char *name, ctt_kind *out, char *error, size_t n)
{
    return guarded(error, n, [&] {
        if (!model->module.hasattr(name))
            throw std::runtime_error(std::string("there is no attribute ") + name);
        IValue value = model->module.attr(name);
        *out = value.isInt()      ? CTT_INT
               : value.isDouble() ? CTT_FLOAT
               : value.isBool()   ? CTT_BOOL
               : value.isNone()   ? CTT_NONE
                                  : CTT_TENSOR;
    });
}

// --- which attributes runs change ---

void
digest_bytes(size_t &digest, const void *bytes, size_t n)
{
    size_t more =
        std::hash<std::string_view>{}(std::string_view(static_cast<const char *>(bytes), n));

    digest = (digest ^ more) * 0x9e3779b97f4a7c15u + (digest >> 29);
}

void
digest_tensor(size_t &digest, const at::Tensor &tensor)
{
    constexpr size_t most = 16 << 20;

    if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.is_quantized())
        return;
    at::Tensor here = tensor.detach().to(at::kCPU).resolve_conj().resolve_neg().contiguous();
    digest_bytes(digest, here.sizes().data(), here.sizes().size() * sizeof(int64_t));
    digest_bytes(digest, here.data_ptr(), std::min(most, static_cast<size_t>(here.nbytes())));
}

void
digest_value(size_t &digest, const IValue &value)
{
    int tag = value.isTensor() ? 1 : value.isNone() ? 2 : value.isList() ? 3 : 4;

    digest_bytes(digest, &tag, sizeof(tag));
    if (value.isTensor()) {
        digest_tensor(digest, value.toTensor());
    } else if (value.isInt() || value.isDouble() || value.isBool()) {
        double number = value.toScalar().toDouble();
        digest_bytes(digest, &number, sizeof(number));
    } else if (value.isString()) {
        digest_bytes(digest, value.toStringRef().data(), value.toStringRef().size());
    } else if (value.isList()) {
        for (const IValue &member : value.toListRef())
            digest_value(digest, member);
    } else if (value.isTuple()) {
        for (const auto &member : value.toTupleRef().elements())
            digest_value(digest, member);
    } else if (value.isGenericDict()) {
        for (const auto &entry : value.toGenericDict()) {
            digest_value(digest, entry.key());
            digest_value(digest, entry.value());
        }
    }
}

int
model_changed(ctt_model *model, char *names, size_t names_n, char *error, size_t n)
{
    return guarded(error, n, [&] {
        const bool first = model->digests.empty();
        std::set<std::string> parameters;
        std::string changed;

        if (names_n > 0)
            names[0] = '\0';
        if (!model->method) // a package keeps nothing
            return;
        for (const auto &parameter : model->module.named_parameters(true))
            parameters.insert(parameter.name);
        for (const auto &attribute : model->module.named_attributes(true)) {
            if (attribute.value.isObject() || parameters.count(attribute.name) ||
                model->set.count(attribute.name))
                continue;
            size_t digest = 1;
            digest_value(digest, attribute.value);
            auto at = model->digests.find(attribute.name);
            if (!first && (at == model->digests.end() || at->second != digest))
                changed += (changed.empty() ? "" : ", ") + attribute.name;
            model->digests[attribute.name] = digest;
        }
        changed.resize(std::min(changed.size(), names_n ? names_n - 1 : 0));
        if (names_n > 0)
            std::memcpy(names, changed.c_str(), changed.size() + 1);
    });
}

// Takes the memory of the run before again, unless somebody still holds the tensor or a view of it
// (the module in an attribute, or a result), or the method has changed its size or type in place.
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

// The arguments of a run; they are taken from the front on.
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
    if (type->kind() == TypeKind::OptionalType) {
        if (given.at < given.end && given.at->kind == CTT_NONE)
            return take_one(given);
        return take(type->expectRef<c10::OptionalType>().getElementType(), given);
    }
    if (type->kind() == TypeKind::TupleType) {
        std::vector<IValue> members;

        for (const auto &member : type->expectRef<c10::TupleType>().elements())
            members.push_back(take(member, given));
        return c10::ivalue::Tuple::create(std::move(members));
    }
    if (type->kind() == TypeKind::ListType) { // a list takes all remaining arguments
        c10::List<at::Tensor> members;

        if (type->expectRef<c10::ListType>().getElementType()->kind() != TypeKind::TensorType)
            throw std::runtime_error(
                "the method takes a " + type->annotation_str() +
                ", which tensors are not put into: write a wrapper whose forward takes tensors");

        while (given.at < given.end)
            members.push_back(take_one(given).toTensor());
        return members;
    }
    if (given.at == given.end)
        throw std::runtime_error("the method takes more arguments");
    return scalar_as(take_one(given), type);
}

// Measures the time of a method, if the caller asks for it. A GPU is done only when its results are
// here, so there the time goes on until stop() is called for the second time.
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

    stack.reserve(wanted.size()); // one more for the module itself
    for (size_t i = 1; i < wanted.size() && (given.at < given.end || !wanted[i].default_value());
         i++)
        stack.push_back(take(wanted[i].type(), given));
    if (given.at < given.end)
        throw std::runtime_error("the method takes fewer arguments than " +
                                 count_of(given.end - given.begin, "value"));
    watch.start();
    IValue result = (*model->method)(std::move(stack));
    watch.stop();
    const auto &returns = model->method->function().getSchema().returns();
    flatten(result, returns.size() == 1 ? returns[0].type() : result.type(), model->results);
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

void
seed_all(uint64_t seed)
{
    char error[256];

    guarded(error, sizeof(error), [&] { at::manual_seed(seed); });
}

int
devices(uint32_t *count, char *error, size_t n)
{
    return guarded(error, n, [&] { *count = static_cast<uint32_t>(count_devices()); });
}

// After an update of libtorch, a library that was compiled against one version may open another.
const char *
loaded_version()
{
    static const std::string version = [] {
        const std::string config = at::show_config(), key = "TORCH_VERSION=";
        size_t at = config.find(key);

        if (at == config.npos)
            return std::string(TORCH_VERSION);
        at += key.size();
        return config.substr(at, config.find_first_of(", \n", at) - at);
    }();

    return version.c_str();
}

ctt_api api = {CTT_ABI,
               sizeof(ctt_api),
               TORCH_VERSION, // it stays this until somebody asks
               TORCH_VERSION,
               model_load,
               model_unload,
               model_schema,
               model_set_attribute,
               model_get_attribute,
               model_room,
               model_run,
               model_method,
               seed_all,
               model_attribute_kind,
               model_changed,
               devices};

} // namespace

extern "C" __attribute__((visibility("default"))) const ctt_api *
continuo_torch(uint32_t abi)
{
    if (abi != CTT_ABI)
        return nullptr;
    try {
        api.version = loaded_version();
    } catch (...) { // it stays the version that this was compiled against
    }
    return &api;
}
