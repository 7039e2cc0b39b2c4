# libcontinuo_torch.so, where a libtorch is: CN_TORCH_DIR is the folder `torch` of the Python package
# (scripts/setup.sh --torch puts one into .venv), or any folder with its include/ and lib/. Nothing
# else needs it. Written by hand instead of find_package(Torch), which takes headers of one libtorch
# and libraries of another where two are installed.
file(GLOB found ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
set(CN_TORCH_DIR "" CACHE PATH "libtorch: the folder with include/ and lib/; empty: that of .venv")
if(NOT CN_TORCH_DIR)
  set(CN_TORCH_DIR ${found})
endif()
# Debian's libtorch-dev, older and built otherwise: where it is installed the library is compiled against
# it, too, for tests/e2e/test_torch_portability.py.
set(CN_TORCH_SYSTEM_DIR /usr CACHE PATH "Debian's libtorch: the folder with include/ and lib/")
# A wheel of ours has a library for each of some versions of PyTorch (scripts/torch_versions.sh).
set(CN_TORCH_MORE_DIRS "" CACHE STRING "more of PyTorch's folders; each gives libcontinuo_torch-X.Y.so")
if(CN_TORCH_MORE_DIRS OR EXISTS ${CN_TORCH_DIR}/include/torch/script.h OR
   EXISTS ${CN_TORCH_SYSTEM_DIR}/include/torch/script.h)
  enable_language(CXX)
  set(CMAKE_CXX_FLAGS_DEBUG "")
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "")
endif()

# The library with this name into `output`, against the libtorch of `dir`.
function(cn_torch_module target dir output name)
  set(libraries ${dir}/lib)
  if(NOT EXISTS ${libraries}/libtorch.so)
    set(libraries ${dir}/lib/${CMAKE_LIBRARY_ARCHITECTURE})
  endif()
  message(STATUS "torch: ${dir}")
  add_library(${target} MODULE ${CMAKE_SOURCE_DIR}/handlers/torchlib/torch_library.cpp)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR})
  target_include_directories(${target} SYSTEM PRIVATE
    ${dir}/include ${dir}/include/torch/csrc/api/include)
  # The command is the same in each preset, so that ccache spends its 40 s of compilation once, and libtorch
  # isn't made for sanitizers. -g would make it differ by the folder of the build.
  # The version script leaves one symbol; libtorch's headers would export a hundred.
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} CXX_STANDARD 20
    INTERPROCEDURAL_OPTIMIZATION OFF
    COMPILE_OPTIONS "-O2;-DNDEBUG;-D_FORTIFY_SOURCE=2;-fstack-protector-strong;-Wall;-Wextra"
    LINK_OPTIONS "-Wl,--as-needed,--version-script=${CMAKE_SOURCE_DIR}/handlers/torchlib/symbols.map"
    BUILD_RPATH ${libraries} INSTALL_RPATH ${libraries}
    LIBRARY_OUTPUT_DIRECTORY ${output})
  target_link_libraries(${target} PRIVATE ${libraries}/libtorch.so
    ${libraries}/libtorch_cpu.so ${libraries}/libc10.so)
  if(CN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER ${CN_CCACHE})
  endif()
endfunction()

# "2.13", of the PyTorch in `dir`.
function(cn_torch_version dir out)
  foreach(part MAJOR MINOR)
    file(STRINGS ${dir}/include/torch/headeronly/version.h line REGEX "#define TORCH_VERSION_${part} ")
    string(REGEX MATCH "[0-9]+$" ${part} "${line}")
  endforeach()
  set(${out} ${MAJOR}.${MINOR} PARENT_SCOPE)
endfunction()

function(cn_torch_library)
  foreach(dir ${CN_TORCH_MORE_DIRS})
    cn_torch_version(${dir} version)
    cn_torch_module(continuo_torch_${version} ${dir} ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
      continuo_torch-${version})
  endforeach()
  if(EXISTS ${CN_TORCH_SYSTEM_DIR}/include/torch/script.h)
    cn_torch_module(continuo_torch_system ${CN_TORCH_SYSTEM_DIR}
      ${CMAKE_BINARY_DIR}/tests/torch-system continuo_torch)
  endif()
  if(EXISTS ${CN_TORCH_DIR}/include/torch/script.h)
    cn_torch_module(continuo_torch ${CN_TORCH_DIR} ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} continuo_torch)
  else()
    message(STATUS "torch: no libtorch, TorchScript models are left out (scripts/setup.sh --torch)")
  endif()
endfunction()
