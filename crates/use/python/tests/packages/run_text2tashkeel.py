"""Vowel marks of Arabic text by every model that text2tashkeel brings, quantised while they run."""

import json

from text2tashkeel import Diacritizer
from text2tashkeel._models import BUNDLED

text = "بسم الله الرحمن الرحيم ذهب الولد الى المدرسه صباحا"
print(json.dumps({name: Diacritizer(name).diacritize(text) for name in sorted(BUNDLED)}))
