# Outside libraries, all from Debian 12 (scripts/setup.sh installs them). Each
# becomes cn_lib_<name>; only the folders named in CMakeLists.txt link it.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

function(cn_dependency name module)
  pkg_check_modules(CN_PC_${name} REQUIRED IMPORTED_TARGET ${module})
  add_library(cn_lib_${name} INTERFACE)
  target_link_libraries(cn_lib_${name} INTERFACE PkgConfig::CN_PC_${name})
endfunction()

cn_dependency(yaml yaml-0.1)
cn_dependency(lmdb lmdb)
cn_dependency(sodium libsodium)
cn_dependency(xxhash libxxhash)
cn_dependency(archive libarchive)
cn_dependency(jansson jansson)
cn_dependency(microhttpd libmicrohttpd)
cn_dependency(gnutls gnutls)
cn_dependency(lua lua5.4)
cn_dependency(msgpack msgpack)
cn_dependency(curl libcurl)
cn_dependency(zlib zlib)
# Debian's package has no pkg-config file.
find_library(CN_WSLAY_LIBRARY wslay REQUIRED)
find_path(CN_WSLAY_INCLUDE wslay/wslay.h REQUIRED)
add_library(cn_lib_wslay INTERFACE)
target_include_directories(cn_lib_wslay SYSTEM INTERFACE ${CN_WSLAY_INCLUDE})
target_link_libraries(cn_lib_wslay INTERFACE ${CN_WSLAY_LIBRARY})
# Only its header: store/valkey opens the library when a shared store is used.
pkg_check_modules(CN_PC_hiredis REQUIRED hiredis)
cn_dependency(cmocka cmocka)
cn_dependency(protobuf-c libprotobuf-c)
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
# Not all that its pkg-config file lists: the core's C API needs these two.
pkg_check_modules(CN_PC_grpc REQUIRED grpc)
add_library(cn_lib_grpc INTERFACE)
target_include_directories(cn_lib_grpc SYSTEM INTERFACE ${CN_PC_grpc_INCLUDE_DIRS})
target_link_libraries(cn_lib_grpc INTERFACE grpc gpr)
