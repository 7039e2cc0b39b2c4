# Outside libraries, all from Debian 12 (scripts/setup.sh installs them). Each
# becomes cn_lib_<name>; only the folders named in CMakeLists.txt link it.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

function(cn_dependency name module)
  pkg_check_modules(CN_PC_${name} REQUIRED IMPORTED_TARGET ${module})
  add_library(cn_lib_${name} INTERFACE)
  target_link_libraries(cn_lib_${name} INTERFACE PkgConfig::CN_PC_${name})
endfunction()

# Without pkg-config. `names` is a list of what the library is called in one release or another.
function(cn_dependency_by_header name header names)
  find_library(CN_${name}_LIBRARY NAMES ${names} REQUIRED)
  find_path(CN_${name}_INCLUDE ${header} REQUIRED)
  add_library(cn_lib_${name} INTERFACE)
  target_include_directories(cn_lib_${name} SYSTEM INTERFACE ${CN_${name}_INCLUDE})
  target_link_libraries(cn_lib_${name} INTERFACE ${CN_${name}_LIBRARY})
endfunction()

cn_dependency(yaml yaml-0.1)
cn_dependency(lmdb lmdb)
cn_dependency(sodium libsodium)
cn_dependency(xxhash libxxhash)
cn_dependency(archive libarchive)
cn_dependency(jansson jansson)
cn_dependency(gnutls gnutls)
cn_dependency(lua lua5.4)
cn_dependency(curl libcurl)
cn_dependency(zlib zlib)
# Debian's package has no pkg-config file.
cn_dependency_by_header(wslay wslay/wslay.h wslay)
# Debian 13's package names a folder with headers that is not there.
cn_dependency_by_header(msgpack msgpack.h "msgpack-c;msgpackc")
# Only its header: store/valkey opens the library when a shared store is used.
pkg_check_modules(CN_PC_hiredis REQUIRED hiredis)
cn_dependency(cmocka cmocka)
cn_dependency(protobuf-c libprotobuf-c)
cn_dependency(nghttp2 libnghttp2)
# The server's malloc (docs/decisions/0004). Builds for finding faults have the C library's or a
# sanitizer's own, which know more.
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  add_library(cn_lib_malloc INTERFACE)
else()
  # No code names it, so the linker must be told that it is needed; it alone, because the server
  # must not get the libraries of code that it does not use, such as LMDB.
  pkg_check_modules(CN_PC_malloc REQUIRED jemalloc)
  add_library(cn_lib_malloc INTERFACE)
  target_link_libraries(cn_lib_malloc INTERFACE -Wl,--push-state,--no-as-needed
    ${CN_PC_malloc_LINK_LIBRARIES} -Wl,--pop-state)
endif()
foreach(name dl m)
  add_library(cn_lib_${name} INTERFACE)
endforeach()
target_link_libraries(cn_lib_dl INTERFACE ${CMAKE_DL_LIBS})
target_link_libraries(cn_lib_m INTERFACE m)
# Only bench/ links the rest: echo-mhd, the bare echo over HTTP, and grpc-bench.
cn_dependency(microhttpd libmicrohttpd)
# The core's C API needs these two, and pkg-config would list all that the C++ API needs; that of Debian 13 does not end.
cn_dependency_by_header(grpc grpc/grpc.h grpc)
cn_dependency_by_header(gpr grpc/support/alloc.h gpr)
target_link_libraries(cn_lib_grpc INTERFACE cn_lib_gpr)
