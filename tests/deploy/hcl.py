# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""A strict reader of the HCL that deploy/nomad is written in: attributes, blocks, strings, numbers,
booleans, lists and objects, without expressions and here-documents. It takes no attribute twice.
Debian has no library for HCL 2."""

import re

TOKEN = re.compile(r"""
    (?P<space>[ \t]+|\#[^\n]*|//[^\n]*|/\*.*?\*/)
  | (?P<newline>\n)
  | (?P<string>"(?:[^"\\\n]|\\[nrt"\\])*")
  | (?P<number>-?[0-9]+(?:\.[0-9]+)?)
  | (?P<name>[A-Za-z_][A-Za-z0-9_-]*)
  | (?P<mark>[={}\[\],])
""", re.X | re.S)
ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}
CONSTANTS = {"true": True, "false": False, "null": None}


class Body:
    """What is between braces, or a whole file."""

    def __init__(self):
        self.attributes = {}
        self.blocks = []  # (type, labels, Body)

    def all(self, kind):
        """The blocks of a type, in order."""
        return [(labels, body) for found, labels, body in self.blocks if found == kind]

    def one(self, kind):
        found = self.all(kind)
        if len(found) != 1:
            raise LookupError(f"{len(found)} blocks {kind}, not 1")
        return found[0][1]

    def get(self, name, default=None):
        return self.attributes.get(name, default)


class Reader:
    def __init__(self, name, text):
        self.name = name
        self.tokens = []
        line, at = 1, 0
        while at < len(text):
            match = TOKEN.match(text, at)
            if match is None:
                raise ValueError(f"{name}:{line}: cannot read {text[at:at + 20]!r}")
            if match.lastgroup != "space":
                self.tokens.append((match.lastgroup, match.group(), line))
            line += match.group().count("\n")
            at = match.end()
        self.tokens.append(("end", "", line))

    def next(self):
        return self.tokens[0]

    def take(self, *wanted):
        """The next token's text. wanted: kinds or marks of which it has to be one."""
        kind, text, line = self.tokens[0]
        if wanted and kind not in wanted and text not in wanted:
            raise ValueError(f"{self.name}:{line}: {text.strip() or kind}, not {wanted[0]}")
        self.tokens.pop(0)
        return text

    def skip(self, *marks):
        while self.next()[0] == "newline" or self.next()[1] in marks:
            self.take()

    def fail(self, why):
        raise ValueError(f"{self.name}:{self.next()[2]}: {why}")

    def body(self, end):
        """A Body up to end: its closing brace, or the "end" of the file."""
        body = Body()
        self.skip()
        while self.next()[0] != "end" and self.next()[1] != "}":
            name = self.take("name")
            if self.next()[1] == "=":
                self.take()
                if name in body.attributes:
                    self.fail(f"{name} is given twice")
                body.attributes[name] = self.value()
            else:
                labels = []
                while self.next()[0] == "string":
                    labels.append(self.string())
                self.take("{")
                body.blocks.append((name, labels, self.body("}")))
            if self.next()[0] != "end" and self.next()[1] != "}":
                self.take("newline")
            self.skip()
        self.take(end)
        return body

    def string(self):
        text = self.take("string")[1:-1]
        return re.sub(r"\\(.)", lambda match: ESCAPES[match.group(1)], text)

    def value(self):
        kind, text, _ = self.next()
        if kind == "string":
            return self.string()
        if kind == "number":
            number = self.take()
            return float(number) if "." in number else int(number)
        if kind == "name" and text in CONSTANTS:
            return CONSTANTS[self.take()]
        if text == "[":
            return self.list()
        if text == "{":
            return self.object()
        return self.fail(f"{text.strip() or kind} is no value")

    def list(self):
        items = []
        self.take("[")
        self.skip()
        while self.next()[1] != "]":
            items.append(self.value())
            self.skip()
            if self.next()[1] != "]":
                self.take(",")
                self.skip()
        self.take("]")
        return items

    def object(self):
        items = {}
        self.take("{")
        self.skip()
        while self.next()[1] != "}":
            name = self.string() if self.next()[0] == "string" else self.take("name")
            self.take("=")
            if name in items:
                self.fail(f"{name} is given twice")
            items[name] = self.value()
            if self.next()[1] != "}":
                self.take("newline", ",")
            self.skip()
        self.take("}")
        return items


def read(path):
    """The Body of a file. Raises ValueError, with the line, for what it cannot read."""
    with open(path, encoding="utf-8") as file:
        return Reader(path.rsplit("/", 1)[-1], file.read()).body("end")
