# Turns a file into a C array: cmake -DIN=page.html -DOUT=page.c -DNAME=cn_docs_page -P this
file(READ ${IN} hex HEX)
string(LENGTH "${hex}" digits)
math(EXPR bytes "${digits} / 2")
string(REGEX REPLACE "(..)" "0x\\1," array "${hex}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n" array "${array}")
file(WRITE ${OUT} "#include <stddef.h>\n
extern const unsigned char ${NAME}[];\nextern const size_t ${NAME}_bytes;\n
const unsigned char ${NAME}[] = {\n${array}\n};\nconst size_t ${NAME}_bytes = ${bytes};\n")
