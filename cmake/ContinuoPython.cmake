# The package `continuo` for Python handlers: python/continuo and, built here, continuo/_worker.abi3.so,
# which is the worker's code once more as a library that Python loads. It needs Python's headers
# (python3-dev) and links no Python: the interpreter that loads it has the rest. The stable ABI of 3.9
# makes one build do for all later versions. Without the headers everything else is built, and Python
# models are refused with a sentence.
find_package(Python3 COMPONENTS Interpreter Development.Module QUIET)
# Without ThreadSanitizer, which an interpreter that was built without it cannot load.
if(CN_SANITIZE MATCHES "thread" OR CN_FUZZ OR CN_COVERAGE)
  set(CN_PYTHON OFF)
endif()
option(CN_PYTHON "Build the worker of Python models, if Python's headers are installed" ON)

# cn_python_package(FOLDERS folders whose .c make the library; LEFT_OUT files): into bin/python.
function(cn_python_package)
  cmake_parse_arguments(ARG "" "" "FOLDERS;LEFT_OUT;LIBS" ${ARGN})
  if(NOT CN_PYTHON OR NOT Python3_Development.Module_FOUND)
    message(STATUS "python: left out, or no headers (apt-get install python3-dev): no Python models")
    return()
  endif()
  set(out ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/python)
  if(CN_SANITIZE MATCHES "address")
    execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=libasan.so
      OUTPUT_VARIABLE preload OUTPUT_STRIP_TRAILING_WHITESPACE)
    set_property(SOURCE ${CMAKE_SOURCE_DIR}/management/workers/spawn.c APPEND PROPERTY
      COMPILE_DEFINITIONS CN_PYTHON_PRELOAD="${preload}")
  endif()
  list(TRANSFORM ARG_FOLDERS REPLACE "(.+)" "${CMAKE_SOURCE_DIR}/\\1/*.c" OUTPUT_VARIABLE patterns)
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  list(FILTER sources EXCLUDE REGEX "(_test|_main)\\.c$")
  list(TRANSFORM ARG_LEFT_OUT PREPEND ${CMAKE_SOURCE_DIR}/)
  list(REMOVE_ITEM sources ${ARG_LEFT_OUT})
  list(TRANSFORM ARG_LIBS PREPEND cn_lib_)
  add_library(continuo-python MODULE ${sources})
  target_include_directories(continuo-python PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/include)
  target_include_directories(continuo-python SYSTEM PRIVATE ${Python3_INCLUDE_DIRS})
  target_compile_options(continuo-python PRIVATE -fPIC -fvisibility=hidden)
  target_link_libraries(continuo-python PRIVATE ${ARG_LIBS} Threads::Threads)
  set_target_properties(continuo-python PROPERTIES PREFIX "" OUTPUT_NAME _worker SUFFIX .abi3.so
    LIBRARY_OUTPUT_DIRECTORY ${out}/continuo)
  get_target_property(options continuo-python LINK_OPTIONS) # what makes programs breaks libraries
  if(options)
    list(REMOVE_ITEM options -pie)
    set_property(TARGET continuo-python PROPERTY LINK_OPTIONS ${options})
  endif()
  file(GLOB_RECURSE files RELATIVE ${CMAKE_SOURCE_DIR}/python CONFIGURE_DEPENDS
    ${CMAKE_SOURCE_DIR}/python/*.py ${CMAKE_SOURCE_DIR}/python/*.typed)
  list(FILTER files EXCLUDE REGEX "^tests/")
  set(copies "")
  foreach(file ${files})
    add_custom_command(OUTPUT ${out}/${file} DEPENDS ${CMAKE_SOURCE_DIR}/python/${file}
      COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_SOURCE_DIR}/python/${file} ${out}/${file})
    list(APPEND copies ${out}/${file})
  endforeach()
  add_custom_target(continuo-python-files ALL DEPENDS ${copies})
  add_dependencies(continuo-python continuo-python-files)
  foreach(program continuo torchserve)
    add_dependencies(${program} continuo-python)
  endforeach()
  install(TARGETS continuo-python LIBRARY DESTINATION lib/continuo/python/continuo)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/python/ DESTINATION lib/continuo/python
    FILES_MATCHING PATTERN *.py PATTERN *.typed PATTERN tests EXCLUDE PATTERN __pycache__ EXCLUDE)
  file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/python/tests/*_test.py)
  foreach(test ${tests})
    get_filename_component(name ${test} NAME_WE)
    string(REGEX REPLACE "_test$" "" name ${name})
    add_test(NAME python.${name} COMMAND ${Python3_EXECUTABLE} ${test} ${out})
    set_tests_properties(python.${name} PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77)
    cn_test_environment(python.${name})
    if(preload)
      set_property(TEST python.${name} APPEND PROPERTY ENVIRONMENT "LD_PRELOAD=${preload}"
        "LSAN_OPTIONS=detect_leaks=0")
    endif()
  endforeach()
endfunction()
