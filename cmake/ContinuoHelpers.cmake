# What tests run under: a sanitizer answers NULL for absurd sizes as malloc does (tests ask for
# them), and shows where undefined behaviour was.
function(cn_test_environment test)
  set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT
    "ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=1"
    "UBSAN_OPTIONS=print_stacktrace=1"
    "TSAN_OPTIONS=allocator_may_return_null=1:suppressions=${CMAKE_SOURCE_DIR}/tests/support/tsan.supp")
endfunction()

# cn_library(folder DEPS other folders LIBS outside libraries)
# Takes every .c of the folder but main.c and *_test.c; each *_test.c becomes a
# cmocka test named folder.file.
function(cn_library folder)
  cmake_parse_arguments(ARG "" "" "DEPS;LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.c)
  file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*_test.c)
  list(REMOVE_ITEM sources ${CMAKE_SOURCE_DIR}/${folder}/main.c ${tests})
  if(NOT sources)
    message(FATAL_ERROR "${folder} has no sources")
  endif()
  add_library(cn_${folder} STATIC ${sources})
  target_include_directories(cn_${folder} PUBLIC ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/include)
  list(TRANSFORM ARG_DEPS PREPEND cn_)
  list(TRANSFORM ARG_LIBS PREPEND cn_lib_)
  target_link_libraries(cn_${folder} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_LIBS} Threads::Threads)
  foreach(test ${tests})
    get_filename_component(name ${test} NAME_WE)
    string(REGEX REPLACE "_test$" "" name ${name})
    add_executable(test_${folder}_${name} ${test})
    target_link_libraries(test_${folder}_${name} PRIVATE cn_${folder} ${ARG_LIBS} cn_lib_cmocka)
    set_target_properties(test_${folder}_${name} PROPERTIES
      RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    add_test(NAME ${folder}.${name} COMMAND test_${folder}_${name})
    set_tests_properties(${folder}.${name} PROPERTIES TIMEOUT 300)
    cn_test_environment(${folder}.${name})
  endforeach()
endfunction()

# cn_embed(folder file NAME name): the file's bytes as the array `name`, and their number as `name`_bytes.
function(cn_embed folder file)
  cmake_parse_arguments(ARG "" "NAME" "" ${ARGN})
  set(made ${CMAKE_BINARY_DIR}/embedded/${ARG_NAME}.c)
  add_custom_command(OUTPUT ${made} DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/${file}
    COMMAND ${CMAKE_COMMAND} -DIN=${CMAKE_SOURCE_DIR}/${folder}/${file} -DOUT=${made}
      -DNAME=${ARG_NAME} -P ${CMAKE_SOURCE_DIR}/cmake/ContinuoEmbed.cmake)
  target_sources(cn_${folder} PRIVATE ${made})
endfunction()

# cn_program(name MAIN file DEPS folders): a binary in build/<preset>/bin.
function(cn_program name)
  cmake_parse_arguments(ARG "" "MAIN" "DEPS;LIBS" ${ARGN})
  list(TRANSFORM ARG_DEPS PREPEND cn_)
  list(TRANSFORM ARG_LIBS PREPEND cn_lib_)
  add_executable(${name} ${CMAKE_SOURCE_DIR}/${ARG_MAIN})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} ${ARG_LIBS})
endfunction()

# cn_module(name OF folder FOR programs LIBS ...): name.so, which programs load at run time. It has
# the folder's code only; the rest it finds in the program, which therefore keeps and shows all of
# what the folder's arrows name.
function(cn_module name)
  cmake_parse_arguments(ARG "" "OF" "FOR;LIBS" ${ARGN})
  list(TRANSFORM ARG_LIBS PREPEND cn_lib_)
  add_library(${name} MODULE $<TARGET_OBJECTS:cn_${ARG_OF}> $<TARGET_OBJECTS:cn_messages>)
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} Threads::Threads)
  target_compile_options(cn_${ARG_OF} PRIVATE -fPIC)
  set_target_properties(${name} PROPERTIES PREFIX "" SUFFIX ".so" LINKER_LANGUAGE C
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
  get_target_property(options ${name} LINK_OPTIONS) # what makes programs breaks libraries
  if(options)
    list(REMOVE_ITEM options -pie)
    set_property(TARGET ${name} PROPERTY LINK_OPTIONS ${options})
  endif()
  set_target_properties(${ARG_FOR} PROPERTIES ENABLE_EXPORTS ON)
  foreach(folder core proto config scheduler management v2 frontend)
    set_target_properties(${ARG_FOR} PROPERTIES LINK_LIBRARY_OVERRIDE_cn_${folder} WHOLE_ARCHIVE)
  endforeach()
  foreach(program ${ARG_FOR})
    add_dependencies(${program} ${name})
  endforeach()
endfunction()

# cn_programs(folders): the target `programs`, which is all but unit tests and fuzz targets: what end-to-end
# tests start.
function(cn_programs)
  add_custom_target(programs)
  foreach(folder ${ARGN})
    get_property(targets DIRECTORY ${CMAKE_SOURCE_DIR}/${folder} PROPERTY BUILDSYSTEM_TARGETS)
    list(FILTER targets EXCLUDE REGEX "^(test_|fuzz_|programs$)")
    if(targets)
      add_dependencies(programs ${targets})
    endif()
  endforeach()
endfunction()

function(cn_summary)
  message(STATUS "continuo ${PROJECT_VERSION}: ${CMAKE_BUILD_TYPE}, sanitizers: "
    "${CN_SANITIZE}, warnings as errors: ${CN_WERROR}, fuzzing: ${CN_FUZZ}")
endfunction()
