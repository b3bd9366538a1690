"""Sounds that stand for speech and silence: tones with the overtones and the rhythm of a voice."""

import numpy as np


def sound(seconds=6, rate=16000):
    """A second of near silence, then syllables, then near silence."""
    t = np.arange(seconds * rate) / rate
    pitch = 120 + 20 * np.sin(2 * np.pi * 0.7 * t)
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    voice = sum(np.sin(k * phase) / k**0.7 * (1 + np.sin(2 * np.pi * (1.3 + 0.2 * k) * t)) for k in range(1, 25))
    syllables = np.clip(np.sin(2 * np.pi * 2.2 * t), 0, 1) * ((t > 1) & (t < seconds - 1))
    noise = np.random.default_rng(1).normal(size=t.size)
    return (0.05 * voice * syllables + 0.001 * noise).astype(np.float32)
