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
cn_dependency(archive libarchive)
cn_dependency(jansson jansson)
cn_dependency(microhttpd libmicrohttpd)
cn_dependency(lua lua5.4)
cn_dependency(msgpack msgpack)
cn_dependency(cmocka cmocka)
add_library(cn_lib_dl INTERFACE)
target_link_libraries(cn_lib_dl INTERFACE ${CMAKE_DL_LIBS})
