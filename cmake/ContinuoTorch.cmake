# libcontinuo_torch.so, where a libtorch is: CN_TORCH_DIR is the folder `torch` of the Python package
# (scripts/setup.sh --torch puts one into .venv), or any folder with its include/ and lib/. Nothing
# else needs it. Written by hand instead of find_package(Torch), which takes headers of one libtorch
# and libraries of another where two are installed.
file(GLOB found ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
set(CN_TORCH_DIR "" CACHE PATH "libtorch: the folder with include/ and lib/; empty: that of .venv")
if(NOT CN_TORCH_DIR)
  set(CN_TORCH_DIR ${found})
endif()
if(EXISTS ${CN_TORCH_DIR}/include/torch/script.h)
  enable_language(CXX)
endif()

function(cn_torch_library)
  if(NOT EXISTS ${CN_TORCH_DIR}/include/torch/script.h)
    message(STATUS "torch: no libtorch, TorchScript models are left out (scripts/setup.sh --torch)")
    return()
  endif()
  message(STATUS "torch: ${CN_TORCH_DIR}")
  add_library(continuo_torch MODULE ${CMAKE_SOURCE_DIR}/torchlib/library.cpp)
  target_include_directories(continuo_torch PRIVATE ${CMAKE_SOURCE_DIR})
  target_include_directories(continuo_torch SYSTEM PRIVATE
    ${CN_TORCH_DIR}/include ${CN_TORCH_DIR}/include/torch/csrc/api/include)
  # The same in each preset: its 40 s of compilation are then spent once, and libtorch isn't made for
  # sanitizers. The version script leaves one symbol; libtorch's headers would export a hundred.
  set_target_properties(continuo_torch PROPERTIES
    COMPILE_OPTIONS "-O2;-Wall;-Wextra;-fPIC" COMPILE_DEFINITIONS "" CXX_STANDARD 20
    LINK_OPTIONS "-Wl,--as-needed,--version-script=${CMAKE_SOURCE_DIR}/torchlib/symbols.map"
    BUILD_RPATH ${CN_TORCH_DIR}/lib INSTALL_RPATH ${CN_TORCH_DIR}/lib
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
  target_link_libraries(continuo_torch PRIVATE ${CN_TORCH_DIR}/lib/libtorch.so
    ${CN_TORCH_DIR}/lib/libtorch_cpu.so ${CN_TORCH_DIR}/lib/libc10.so)
  if(CN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set_target_properties(continuo_torch PROPERTIES CXX_COMPILER_LAUNCHER ${CN_CCACHE})
  endif()
  install(TARGETS continuo_torch LIBRARY DESTINATION bin)
endfunction()
