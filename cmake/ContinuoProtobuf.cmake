# proto/**/*.proto become C by protobuf-c, and descriptors that server reflection gives out.
find_program(CN_PROTOC protoc REQUIRED)
find_program(CN_PROTOC_C protoc-c REQUIRED)
find_path(CN_PROTO_INCLUDE google/protobuf/any.proto REQUIRED)

# protoc-c 1.4 refuses proto3's `optional`; a oneof with one member is the same on the wire. So the
# C code is made from a changed copy, and the published files stay plain.
set(CN_OPTIONAL_TO_ONEOF ${CMAKE_SOURCE_DIR}/cmake/optional_to_oneof.sed)

# cn_protobuf(target FILES below proto/ or Google's own): a library; its headers are
# <file.pb-c.h>. ${target}_descriptors.inc is a table of rows
#   FILE("name", bytes, number of bytes)
function(cn_protobuf target)
  set(out ${CMAKE_BINARY_DIR}/protobuf)
  set(sources)
  set(descriptors)
  foreach(file ${ARGN})
    string(REGEX REPLACE "\\.proto$" "" base ${file})
    get_filename_component(folder ${file} DIRECTORY)
    set(origin ${CN_PROTO_INCLUDE}/${file})
    if(EXISTS ${CMAKE_SOURCE_DIR}/proto/${file})
      set(origin ${CMAKE_SOURCE_DIR}/proto/${file})
    endif()
    add_custom_command(
      OUTPUT ${out}/changed/${file}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${out}/changed/${folder} ${out}/c/${folder}
              ${out}/desc/${folder}
      COMMAND sed -E -f ${CN_OPTIONAL_TO_ONEOF} ${origin} > ${out}/changed/${file}
      DEPENDS ${origin} ${CN_OPTIONAL_TO_ONEOF} VERBATIM)
    list(APPEND changed ${out}/changed/${file})
  endforeach()
  foreach(file ${ARGN})
    string(REGEX REPLACE "\\.proto$" "" base ${file})
    set(origin ${CN_PROTO_INCLUDE}/${file})
    if(EXISTS ${CMAKE_SOURCE_DIR}/proto/${file})
      set(origin ${CMAKE_SOURCE_DIR}/proto/${file})
    endif()
    add_custom_command(
      OUTPUT ${out}/c/${base}.pb-c.c ${out}/c/${base}.pb-c.h
      COMMAND ${CN_PROTOC_C} -I${out}/changed --c_out=${out}/c ${file}
      DEPENDS ${changed} VERBATIM)
    add_custom_command(
      OUTPUT ${out}/desc/${base}.desc
      COMMAND ${CN_PROTOC} -I${CMAKE_SOURCE_DIR}/proto -I${CN_PROTO_INCLUDE}
              --descriptor_set_out=${out}/desc/${base}.desc ${file}
      DEPENDS ${changed} VERBATIM)
    list(APPEND sources ${out}/c/${base}.pb-c.c)
    list(APPEND descriptors ${out}/desc/${base}.desc)
  endforeach()
  add_custom_command(
    OUTPUT ${out}/c/${target}_descriptors.inc
    COMMAND ${CMAKE_COMMAND} "-DFILES=${ARGN}" -DFOLDER=${out}/desc
            -DOUT=${out}/c/${target}_descriptors.inc
            -P ${CMAKE_SOURCE_DIR}/cmake/ProtobufDescriptors.cmake
    DEPENDS ${descriptors} ${CMAKE_SOURCE_DIR}/cmake/ProtobufDescriptors.cmake VERBATIM)
  add_library(${target} STATIC ${sources} ${out}/c/${target}_descriptors.inc)
  target_include_directories(${target} SYSTEM PUBLIC ${out}/c)
  target_link_libraries(${target} PUBLIC cn_lib_protobuf-c)
  target_compile_options(${target} PRIVATE -w -fPIC) # generated: its warnings are nobody's
endfunction()
