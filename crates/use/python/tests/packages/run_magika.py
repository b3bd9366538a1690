"""magika: what kinds of files some bytes are."""

import json

import magika

TEXTS = [
    b"#include <stdio.h>\nint main(void) { printf(\"hello\\n\"); return 0; }\n" * 5,
    b"import os\n\ndef main():\n    print(os.getcwd())\n\nif __name__ == '__main__':\n    main()\n" * 5,
    b"{\"name\": \"value\", \"list\": [1, 2, 3]}\n" * 20,
    b"fn main() { let v: Vec<u8> = vec![]; println!(\"{:?}\", v); }\n" * 10,
    b"<html><head><title>t</title></head><body><p>text</p></body></html>" * 10,
    bytes(range(256)) * 8,
]
all = magika.Magika()
found = [all.identify_bytes(text) for text in TEXTS]
print(json.dumps([[str(f.output.label), float(f.score)] for f in found]))
