"""Names in Latin letters: an encoder, and a decoder that is asked letter by letter."""

import json

from arabic_name_romanizer import Transliterator

names = Transliterator()
print(json.dumps([str(names.transliterate(n)) for n in ("محمد", "عبد الرحمن السالم", "خويلد بن قطيفان", "زينب الحمدانيه")]))
