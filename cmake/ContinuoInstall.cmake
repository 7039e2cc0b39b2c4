# What is installed where, and the Debian package of it (scripts/package.sh). Programs find what belongs to them
# in ../lib/continuo (core/system/program_path.c), so the tree may lie anywhere.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "The Continuo developers <continuo@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "model server for stateful inference")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
"Serves models that remember: the steps of each client's sequence run in order,
batched with those of others, and state is committed to disk before an answer
leaves. Speaks TorchServe's APIs and the KServe v2 protocol over HTTP and gRPC.
Handlers are written in Python, Lua or C; Python models need Python 3.9 or later,
TorchScript models need libtorch.")
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS libhiredis0.14) # workers open it when states are in a shared store
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
foreach(file conffiles postinst prerm postrm)
  list(APPEND CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/packaging/${file})
endforeach()
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_INSTALL_CMAKE_PROJECTS
  "${CMAKE_BINARY_DIR};continuo;ALL;/;${CMAKE_BINARY_DIR};continuo;settings;/")
include(CPack)

function(cn_install)
  install(TARGETS continuo torchserve continuo-archiver torch-model-archiver continuo-ctl continuo-dev
    RUNTIME DESTINATION bin)
  install(TARGETS continuo-worker RUNTIME DESTINATION lib/continuo)
  # Bound to one libtorch, which is none of Debian's packages: cmake --install DIR --component torch.
  if(TARGET continuo_torch)
    install(TARGETS continuo_torch LIBRARY DESTINATION lib/continuo COMPONENT torch EXCLUDE_FROM_ALL)
  endif()
  install(FILES include/continuo/handler.h DESTINATION include/continuo)
  install(DIRECTORY proto/ DESTINATION share/continuo/proto FILES_MATCHING PATTERN *.proto)
  install(DIRECTORY examples DESTINATION share/continuo PATTERN CMakeLists.txt EXCLUDE)
  # After the examples, because the links of their pages are adapted as well.
  install(CODE "file(REMOVE_RECURSE ${CMAKE_BINARY_DIR}/documentation)
    execute_process(COMMAND ${CMAKE_SOURCE_DIR}/scripts/installed_docs.py
    ${CMAKE_BINARY_DIR}/documentation COMMAND_ERROR_IS_FATAL ANY)")
  install(DIRECTORY ${CMAKE_BINARY_DIR}/documentation/ DESTINATION share)
  install(DIRECTORY packaging/grafana DESTINATION share/continuo)
  install(FILES packaging/continuo.service DESTINATION lib/systemd/system)
  # The programs write their own pages.
  install(CODE "execute_process(COMMAND ${CMAKE_SOURCE_DIR}/scripts/manpages.sh
    ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${CMAKE_BINARY_DIR}/man OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)")
  install(CODE "execute_process(COMMAND ${CMAKE_SOURCE_DIR}/scripts/completions.sh
    ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${CMAKE_BINARY_DIR}/completions OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)")
  install(DIRECTORY ${CMAKE_BINARY_DIR}/completions/ DESTINATION share)
  install(DIRECTORY ${CMAKE_BINARY_DIR}/man/ DESTINATION share/man/man1 FILES_MATCHING PATTERN *.1)
  install(DIRECTORY ${CMAKE_BINARY_DIR}/man/ DESTINATION share/man/man5 FILES_MATCHING PATTERN *.5)
  # A package's settings: beside /usr, so no part of other installations.
  install(FILES packaging/continuo.yaml DESTINATION ../etc/continuo COMPONENT settings EXCLUDE_FROM_ALL)
endfunction()
