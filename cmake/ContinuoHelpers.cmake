# What tests run under: a sanitizer answers NULL for absurd sizes as malloc does (tests ask for
# them), and shows where undefined behaviour was.
function(cn_test_environment test)
  set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT
    "ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=1"
    "UBSAN_OPTIONS=print_stacktrace=1"
    "TSAN_OPTIONS=allocator_may_return_null=1:suppressions=${CMAKE_SOURCE_DIR}/tests/support/tsan.supp")
endfunction()

# cn_library(name FOLDERS folders DEPS other libraries LIBS outside libraries)
# Takes every .c of the folders but *_main.c and *_test.c; without FOLDERS these are the folder of that
# name and all rooms in it. Each *_test.c becomes a cmocka test named after the top folder and the file.
function(cn_library name)
  cmake_parse_arguments(ARG "" "" "FOLDERS;DEPS;LIBS" ${ARGN})
  if(NOT ARG_FOLDERS)
    set(ARG_FOLDERS ${name} ${name}/*)
  endif()
  list(TRANSFORM ARG_FOLDERS REPLACE "(.+)" "${CMAKE_SOURCE_DIR}/\\1/*.c" OUTPUT_VARIABLE patterns)
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.c$")
  list(FILTER sources EXCLUDE REGEX "(_test|_main)\\.c$|/testdata/")
  if(NOT sources)
    message(FATAL_ERROR "${name} has no sources")
  endif()
  string(REPLACE "/" "_" library ${name})
  string(REGEX REPLACE "/.*" "" top ${name})
  list(TRANSFORM ARG_DEPS REPLACE "/" "_")
  list(TRANSFORM ARG_DEPS PREPEND cn_)
  list(TRANSFORM ARG_LIBS PREPEND cn_lib_)
  add_library(cn_${library} STATIC ${sources})
  target_include_directories(cn_${library} PUBLIC ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/include)
  target_link_libraries(cn_${library} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_LIBS} Threads::Threads)
  foreach(test ${tests})
    get_filename_component(file ${test} NAME_WE)
    string(REGEX REPLACE "_test$" "" file ${file})
    add_executable(test_${top}_${file} ${test})
    target_link_libraries(test_${top}_${file} PRIVATE cn_${library} ${ARG_LIBS} cn_lib_cmocka)
    set_target_properties(test_${top}_${file} PROPERTIES
      RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    add_test(NAME ${top}.${file} COMMAND test_${top}_${file})
    set_tests_properties(${top}.${file} PROPERTIES TIMEOUT 300)
    cn_test_environment(${top}.${file})
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

# cn_page_files(folder room): cn_embed for each file of the table <folder>/<room>/page_files.def; an
# array is called cn_page_<symbol>.
function(cn_page_files folder room)
  set(table ${CMAKE_SOURCE_DIR}/${folder}/${room}/page_files.def)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${table})
  file(STRINGS ${table} rows REGEX "^CN_PAGE_FILE")
  foreach(row IN LISTS rows)
    string(REGEX REPLACE "CN_PAGE_FILE\\(([a-z_]+), \"([^\"]+)\".*" "\\1;\\2" parts "${row}")
    list(GET parts 0 symbol)
    list(GET parts 1 file)
    cn_embed(${folder} ${room}/${file} NAME cn_page_${symbol})
  endforeach()
endfunction()

# cn_templates(folder): cn_embed for each file of the table <folder>/templates.def; an array is
# called cn_template_<array>.
function(cn_templates folder)
  set(table ${CMAKE_SOURCE_DIR}/${folder}/templates.def)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${table})
  file(STRINGS ${table} rows REGEX "^CN_TEMPLATE")
  foreach(row IN LISTS rows)
    string(REGEX REPLACE "CN_TEMPLATE\\(([a-z_]+), \"([^\"]+)\".*" "\\1;\\2" parts "${row}")
    list(GET parts 0 symbol)
    list(GET parts 1 file)
    cn_embed(${folder} templates/${file} NAME cn_template_${symbol})
  endforeach()
endfunction()

# cn_program(name MAIN file DEPS folders): a binary in build/<preset>/bin.
function(cn_program name)
  cmake_parse_arguments(ARG "" "MAIN" "DEPS;LIBS" ${ARGN})
  list(TRANSFORM ARG_DEPS REPLACE "/" "_")
  list(TRANSFORM ARG_DEPS PREPEND cn_)
  list(TRANSFORM ARG_LIBS PREPEND cn_lib_)
  add_executable(${name} ${CMAKE_SOURCE_DIR}/${ARG_MAIN})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} ${ARG_LIBS})
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
