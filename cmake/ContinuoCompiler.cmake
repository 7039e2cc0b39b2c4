# How everything is compiled. CN_SANITIZE comes from the presets.
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

option(CN_WERROR "Warnings stop the build" OFF)
set(CN_SANITIZE "" CACHE STRING "Sanitizers, comma separated: address,undefined or thread")
option(CN_COVERAGE "Instrument for gcov" OFF)
option(CN_FUZZ "Fuzz targets search with libFuzzer (clang)" OFF)

find_program(CN_CCACHE ccache)
if(CN_CCACHE AND NOT CMAKE_C_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${CN_CCACHE})
endif()

# For C only: the one C++ file, handlers/torchlib/torch_library.cpp, is compiled alike in each preset (ContinuoTorch.cmake).
function(cn_definitions)
  foreach(definition ${ARGN})
    add_compile_definitions($<$<COMPILE_LANGUAGE:C>:${definition}>)
  endforeach()
endfunction()

cn_definitions(_GNU_SOURCE CN_VERSION="${PROJECT_VERSION}")
add_compile_options(
  -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
  -Wwrite-strings -Wvla -Wformat=2 -fno-strict-aliasing -fno-common)
if(CMAKE_C_COMPILER_ID MATCHES "Clang")
  # clang also warns where a va_list is passed on; gcc's view of that is the one we follow.
  add_compile_options(-Wno-format-nonliteral -Wno-string-concatenation)
endif()
if(CN_WERROR)
  add_compile_options(-Werror)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo" AND NOT CN_SANITIZE)
  add_compile_options(-fstack-protector-strong -fstack-clash-protection -fPIE)
  cn_definitions(_FORTIFY_SOURCE=2)
  add_link_options(-pie -Wl,-z,relro,-z,now)
  # Link-time optimization: 3 to 5 % less CPU time a step (docs/performance.md).
  # -DCMAKE_INTERPROCEDURAL_OPTIMIZATION=OFF builds faster and with less memory.
  if(NOT DEFINED CMAKE_INTERPROCEDURAL_OPTIMIZATION)
    include(CheckIPOSupported)
    check_ipo_supported(RESULT CMAKE_INTERPROCEDURAL_OPTIMIZATION OUTPUT ignored LANGUAGES C)
  endif()
else()
  cn_definitions(CN_DEBUG)
endif()
add_link_options(-Wl,--as-needed) # a program gets the libraries that its own code uses
if(CN_SANITIZE)
  add_compile_options(-fsanitize=${CN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${CN_SANITIZE})
  cn_definitions(CN_MALLOC_EACH)
endif()
if(CN_COVERAGE)
  add_compile_options(--coverage)
  add_link_options(--coverage)
endif()
if(CN_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
  cn_definitions(CN_MALLOC_EACH)
endif()
