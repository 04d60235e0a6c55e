"""The names that a C++ file of ours declares: read off its layout, which clang-format decides. Lines at the left edge
declare; what a namespace holds is not indented.
"""
import re

# What begins a line at the left edge and declares no name.
OTHER = re.compile(r"(TEST|TEST_F|TEST_P|INSTANTIATE_TEST_SUITE_P|GTEST_\w+|TYPED_TEST\w*|template|namespace|extern|"
                   r"#|//|\}|\{|public|private|friend|static_assert|\s)")


def in_unnamed(text):
    """{(namespace, name): "type", "function" or "value"} of what stands in unnamed namespaces."""
    return _declared(text, lambda path: path and path[-1] == "")


def outside_unnamed(text):
    """The same of what stands in named ones."""
    return _declared(text, lambda path: path and "" not in path)


def _declared(text, wanted):
    found, path, head = {}, [], ""
    for line in text.splitlines():
        opened = re.match(r"namespace ([\w:]+ )?\{$", line)
        if opened:
            path.append((opened[1] or "").strip())
        elif line.startswith("}  // namespace"):
            path = path[:-1]
        elif wanted(path) and (head or (line and not OTHER.match(line))):
            head = f"{head} {line.split('//')[0].strip()}".strip()
            if re.search(r"[({=;\[](?!\[)", head.replace("[[", "").replace("]]", "")):
                name, kind = _name_of(head)
                if name:
                    found.setdefault(("::".join(part for part in path if part), name), kind)
                head = ""
    return found


def _name_of(head):
    head = re.sub(r"\[\[.*?\]\]", "", head).strip()
    match = re.match(r"(?:struct|class|enum class|enum|union) (\w+)(?! \w+\()|using (\w+) =", head)
    if match:
        return match[1] or match[2], "type"
    plain = None
    while plain != head:  # without template arguments
        plain, head = head, re.sub(r"<[^<>()]*>", "", head)
    match = re.match(r"[^(={;\[]*?([\w:~]+)\s*([({=;\[])", head)
    if not match or "::" in match[1] or re.search(r"\boperator\b", head.split("(")[0]):
        return None, None
    return match[1], "function" if match[2] == "(" else "value"
