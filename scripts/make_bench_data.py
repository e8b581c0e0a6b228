#!/usr/bin/env python3
"""Write what `nightmill bench` holds models against: datasets/bench, generated from the templates below.

    make_bench_data.py             write datasets/bench
    make_bench_data.py --check     exit 1 if the files are not what would be written

How alike two texts are is known by how they were made: other words for the same (5), the same about another thing (3), the
same thing and another matter (2), neither (0). No text is taken from anywhere else.
"""

import json
import random
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "datasets" / "bench"
SEED = 20261125

THINGS = [
    "desk lamp", "laundry basket", "bookshelf", "bath mat", "teapot", "duvet cover", "side table", "casserole",
    "floor lamp", "cutting board", "wool rug", "kitchen stool",
]

# A matter: ways to ask about it, and ways to answer.
MATTERS = {
    "late": (
        ["Where is my {x}? It should have been here on Friday.", "My {x} still hasn't arrived, can you track it?",
         "The delivery of the {x} I bought is overdue. What happened to it?"],
        ["The {x} left our warehouse yesterday and will reach you tomorrow.",
         "Your parcel with the {x} is on its way; expect it by tomorrow evening.",
         "I looked it up: the {x} was handed to the carrier and comes tomorrow."],
    ),
    "broken": (
        ["The {x} came with a crack in it.", "When I opened the box the {x} was damaged.",
         "There is something wrong with my {x}, it is broken."],
        ["I am sorry. We send you a new {x} at no cost, and you may keep the old one.",
         "Please accept our apologies: a replacement {x} ships today, free of charge.",
         "That should not happen. A fresh {x} goes out to you and nothing needs to come back."],
    ),
    "refund": (
        ["I want my money back for the {x}.", "How do I get a refund of the {x}?",
         "Please return the payment that I made for the {x}."],
        ["The amount for the {x} was returned to your card; banks need three to five days.",
         "I have refunded the {x}. You will see the sum on your statement within the week.",
         "Done: your payment for the {x} is on its way back to the card that you used."],
    ),
    "cancel": (
        ["Please cancel my order of the {x}.", "I don't need the {x} any more, can the order be stopped?",
         "Could you call off the purchase of the {x}?"],
        ["The order of the {x} is cancelled and nothing is charged.",
         "I stopped it: there will be no {x} and no invoice.",
         "Your purchase of the {x} was called off before it was packed."],
    ),
    "clean": (
        ["How do I clean the {x}?", "What is the best way to wash the {x}?",
         "The {x} has a stain; how is it removed?"],
        ["Wipe the {x} with a damp cloth and mild soap, and let it dry in the air.",
         "Lukewarm water and a drop of soap do for the {x}; no bleach, please.",
         "A soft wet cloth is enough for the {x}; rub gently and leave it to dry."],
    ),
    "size": (
        ["How big is the {x}?", "What are the measurements of the {x}?", "Will the {x} fit into a narrow corner?"],
        ["The {x} is 60 centimetres wide and 40 deep.", "It measures 60 by 40 centimetres, the {x}.",
         "You need a space of 60 times 40 centimetres for the {x}."],
    ),
    "stock": (
        ["Do you have the {x} in stock?", "When can I buy the {x} again?", "Is the {x} available in green?"],
        ["The {x} is sold out; the next ones come in three weeks.",
         "We expect new ones of the {x} in about three weeks.",
         "At the moment there is no {x} left, but more arrive within the month."],
    ),
    "assemble": (
        ["How is the {x} put together?", "I can't assemble the {x}, a screw seems to be missing.",
         "Are there instructions for building up the {x}?"],
        ["The manual of the {x} is in the flat pocket of the box, and the spare screws are taped to it.",
         "Look under the lid of the box: the guide for the {x} and a bag of screws are there.",
         "You find the steps for the {x} on the sheet in the packing, with screws beside it."],
    ),
}


def pairs(draw):
    rows = []
    matters = list(MATTERS)
    for n in range(60):
        matter, other = draw.sample(matters, 2)
        thing, another = draw.sample(THINGS, 2)
        side = n % 2
        first, second = draw.sample(MATTERS[matter][side], 2)
        elsewhere = draw.choice(MATTERS[other][side])
        say = lambda text, x: text.format(x=x)
        rows += [
            (say(first, thing), say(second, thing), 5),
            (say(first, thing), say(second, another), 3),
            (say(first, thing), say(elsewhere, thing), 2),
            (say(first, thing), say(elsewhere, another), 0),
        ]
    return [{"first": a, "second": b, "score": s} for a, b, s in rows]


def loops(draw):
    rows = []
    for n in range(60):
        matter = draw.choice(list(MATTERS))
        thing, another = draw.sample(THINGS, 2)
        first, second = (text.format(x=thing) for text in draw.sample(MATTERS[matter][1], 2))
        number = draw.randint(1000, 9000)
        rows += [
            (first, first if n % 2 else first + " Anything else?", "repeat"),
            (first, second, "paraphrase"),
            (f"Order {number}: {thing}, paid, shipped on Monday.", f"Order {number + 1}: {another}, open, not shipped.",
             "enumeration"),
            (f"Step {n % 5 + 1}: {first}", f"Step {n % 5 + 2}: " + draw.choice(
                [MATTERS[m][1][0] for m in MATTERS if m != matter]).format(x=another), "enumeration"),
        ]
    return [{"first": a, "second": b, "kind": k} for a, b, k in rows]


def search(draw):
    documents = [
        {"id": f"{matter}/{thing}", "text": MATTERS[matter][1][0].format(x=thing)} for matter in MATTERS for thing in THINGS
    ]
    queries = []
    for matter in MATTERS:
        for thing in draw.sample(THINGS, 8):
            text = draw.choice(MATTERS[matter][0]).format(x=thing)
            queries.append({"query": text, "answer": f"{matter}/{thing}"})
    return documents + queries


def files():
    draw = random.Random(SEED)
    made = {"pairs.jsonl": pairs(draw), "loops.jsonl": loops(draw), "search.jsonl": search(draw)}
    return {name: "".join(json.dumps(row) + "\n" for row in rows) for name, rows in made.items()}


if __name__ == "__main__":
    wrong = []
    for name, text in files().items():
        path = FOLDER / name
        if "--check" in sys.argv:
            wrong += [name] * (not path.exists() or path.read_text() != text)
            continue
        FOLDER.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(f"{name}: {text.count(chr(10))} rows")
    if wrong:
        sys.exit("not what would be written: " + ", ".join(wrong))
