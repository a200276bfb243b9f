"""Encodes and decodes for `lockstep generate`: each line of standard input is a request, each of standard output its
answer, both JSON. Words: tokenizer.json, the program that asks."""

import json
import pathlib
import sys


def load(path, program):
    # What the environment offers comes first, then where tools/setup puts packages.
    for folder in pathlib.Path(program).resolve().parents:
        sys.path.append(str(folder / ".deps/python"))
    import tokenizers

    return tokenizers, tokenizers.Tokenizer.from_file(path)


class Text:
    """A text that grows token by token."""

    def __init__(self, package, tokenizer, prompt):
        self.tokenizer, self.ids, self.told = tokenizer, [], ""
        self.stream = package.decoders.DecodeStream(skip_special_tokens=True)
        for token in prompt:
            self.next(token)

    def next(self, token):
        self.ids.append(token)
        piece = self.stream.step(self.tokenizer, token) or ""
        self.told += piece
        return piece

    def rest(self):
        whole = self.tokenizer.decode(self.ids, skip_special_tokens=True)
        return whole[len(self.told) :] if whole.startswith(self.told) else ""


def answers(package, tokenizer):
    text = None
    yield {"size": tokenizer.get_vocab_size(), "version": package.__version__}
    for line in sys.stdin.buffer:
        ((word, value),) = json.loads(line).items()
        if word == "encode":
            yield {"ids": tokenizer.encode(value).ids}
        elif word == "begin":
            text = Text(package, tokenizer, value)
            yield {}
        elif word == "next":
            yield {"text": text.next(value)}
        else:
            yield {"text": text.rest()}


def main():
    try:
        for answer in answers(*load(*sys.argv[1:])):
            print(json.dumps(answer), flush=True)
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), flush=True)
    except Exception as error:  # what the package raises is of no narrower type
        print(json.dumps({"error": str(error)}), flush=True)


main()
