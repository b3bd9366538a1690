"""What a notebook shows of a model's plan, profile and report, as one page.

    python notebook.py MODEL.onnx PAGE.html
"""

import sys

import shopfloor


def page(model: str) -> str:
    """The page of a model."""
    session = shopfloor.Session(model, threads=2)
    profile = session.profile()
    shown = [session.plan(), profile, profile.report()]
    return "<!doctype html><meta charset='utf-8'>" + "<hr>".join(part._repr_html_() for part in shown)


if __name__ == "__main__":
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(page(sys.argv[1]))
