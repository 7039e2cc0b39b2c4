# The TorchScript library alone, against the PyTorch of CN_TORCH_DIR: see tests/gpu/run.sh.
cmake_minimum_required(VERSION 3.18)
project(continuo_torch CXX)

set(libraries ${CN_TORCH_DIR}/lib)
if(NOT EXISTS ${libraries}/libtorch_cpu.so)
  message(FATAL_ERROR "CN_TORCH_DIR=${CN_TORCH_DIR} has no lib/libtorch_cpu.so")
endif()
# PyTorch's Python packages before 2.6 were built with the C++ library's old ABI.
file(STRINGS ${CN_TORCH_DIR}/share/cmake/Torch/TorchConfig.cmake abi REGEX "_GLIBCXX_USE_CXX11_ABI=[01]")
string(REGEX MATCH "_GLIBCXX_USE_CXX11_ABI=[01]" abi "${abi}")

add_library(continuo_torch MODULE handlers/torchlib/torch_library.cpp)
target_include_directories(continuo_torch PRIVATE ${CMAKE_SOURCE_DIR})
target_include_directories(continuo_torch SYSTEM PRIVATE
  ${CN_TORCH_DIR}/include ${CN_TORCH_DIR}/include/torch/csrc/api/include)
target_compile_definitions(continuo_torch PRIVATE ${abi})
set_target_properties(continuo_torch PROPERTIES CXX_STANDARD 20 PREFIX lib
  LINK_OPTIONS "-Wl,--as-needed,--version-script=${CMAKE_SOURCE_DIR}/handlers/torchlib/symbols.map"
  BUILD_RPATH ${libraries})
target_link_libraries(continuo_torch PRIVATE ${libraries}/libtorch.so ${libraries}/libtorch_cpu.so
  ${libraries}/libc10.so)
