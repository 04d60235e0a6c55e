#!/usr/bin/env python3
"""Writes unicode_categories.cpp from UnicodeData.txt of the Unicode Character Database.

usage: unicode_categories.py UnicodeData.txt > unicode_categories.cpp
"""
import sys

NAMES = ("Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co").split()
SPACE_CONTROL = len(NAMES)       # controls that are white space: tab to carriage return, next line
ALTERNATING = len(NAMES) + 1     # Lu, Ll, Lu, Ll ... from the start of the range on


def read(path):
    table = [0] * 0x110000
    first = None
    for line in open(path, encoding="ascii"):
        fields = line.split(";")
        code, name, category = int(fields[0], 16), fields[1], NAMES.index(fields[2])
        if name.endswith("First>"):
            first = code
            continue
        start = first if name.endswith("Last>") else code
        table[start:code + 1] = [category] * (code + 1 - start)
    for code in [*range(9, 14), 0x85]:
        table[code] = SPACE_CONTROL
    return table


def ranges(table):
    code = 0
    while code < len(table):
        end = code
        upper, lower = NAMES.index("Lu"), NAMES.index("Ll")
        while end + 1 < len(table) and table[end:end + 2] == [upper, lower]:
            end += 2
        if end - code >= 4:
            yield code, ALTERNATING
        else:
            yield code, table[code]
            end = code
            while end < len(table) and table[end] == table[code]:
                end += 1
            # An alternating stretch may begin at the last of several equal letters.
            if end - code > 1 and table[code] == upper and table[end - 1:end + 3] == [upper, lower, upper, lower]:
                end -= 1
        code = end


def main():
    print("// Made by unicode_categories.py from UnicodeData.txt, Unicode 16.0.0. Each number is the first code "
          "point of a range")
    print("// times 32, plus its category as numbered in unicode.h (31: Lu and Ll in turn).")
    print('#include "text/unicode.h"\n')
    print("namespace millrace {\n")
    entries = [f"0x{code * 32 + category:x}" for code, category in ranges(read(sys.argv[1]))]
    print(f"const uint32_t kCategoryRanges[] = {{")
    line = "   "
    for entry in entries:
        if len(line) + len(entry) + 2 > 120:
            print(line)
            line = "   "
        line += f" {entry},"
    print(line)
    print("};")
    print("const size_t kCategoryRangeCount = sizeof(kCategoryRanges) / sizeof(kCategoryRanges[0]);\n")
    print("}  // namespace millrace")


main()
