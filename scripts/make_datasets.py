#!/usr/bin/env python3
"""Write the sample data in datasets/: generated conversations of a made-up shop's support agent.

Everything comes from the templates below and a fixed seed; no text is taken from anywhere else.
The behaviour that a session was built to show is in its traces' metadata, under "design".

    make_datasets.py             write datasets/ and print the sha256 of each file
    make_datasets.py --check     compare the values in datasets/ with what would be written; exit 1 if they differ

The same pyarrow version writes the same bytes; other versions write the same values. Needs pyarrow.
"""

import argparse
import hashlib
import json
import random
import sys
import tempfile
import uuid
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
SEED = 20261119
DAYS = [datetime(2026, 11, 19, tzinfo=timezone.utc), datetime(2026, 11, 20, tzinfo=timezone.utc)]

TIME = pa.timestamp("us", tz="UTC")
TRACE_SCHEMA = pa.schema(
    [("trace_id", pa.string()), ("session_id", pa.string()), ("started_at", TIME), ("ended_at", TIME)]
    + [(c, pa.string()) for c in ("name", "status", "environment", "user_id", "input", "output", "metadata")]
)
SIGNAL_SCHEMA = pa.schema([("trace_id", pa.string()), ("confidence", pa.float64()), ("tool_correctness", pa.float64())])

# Words that fill the slots of the templates.

PRODUCTS = {
    # name: (material, size, weight in kg, price in EUR, colours)
    "Bramble desk lamp": ("powder-coated steel", "42 cm tall", 1.3, 49, "moss, black and cream"),
    "Osier laundry basket": ("woven willow", "38 by 60 cm", 2.1, 59, "natural and charcoal"),
    "Tern bookshelf": ("solid ash", "80 by 180 cm", 27.5, 329, "natural and white oil"),
    "Pumice bath mat": ("organic cotton", "50 by 80 cm", 0.9, 34, "sand, slate and clay"),
    "Hollow teapot": ("stoneware", "1.2 litres", 0.8, 45, "ink blue and oat"),
    "Juniper duvet cover": ("washed linen", "140 by 200 cm", 1.1, 119, "fog, rust and olive"),
    "Plover side table": ("oiled oak", "45 cm wide", 5.4, 139, "oak and smoked oak"),
    "Cinder casserole": ("enamelled cast iron", "4 litres", 5.0, 159, "red, graphite and cream"),
    "Willet floor lamp": ("brass and linen", "155 cm tall", 6.2, 189, "brass and black"),
    "Sorrel cutting board": ("end-grain walnut", "30 by 45 cm", 2.6, 69, "walnut only"),
    "Marl wool rug": ("undyed wool", "170 by 240 cm", 12.8, 279, "grey, ivory and brown"),
    "Dunlin kitchen stool": ("beech", "65 cm tall", 4.1, 99, "beech, green and black"),
}
FIRST = "Ana Ben Chloe Dario Elif Femi Greta Hugo Ines Jonas Kim Lena Marek Nia Omar Priya Quinn Rosa Sven Tara".split()
FIRST += ["Zoë", "Jürgen", "Łukasz", "Søren", "Núria"]
STREETS = ["Mill Lane", "Harbour Road", "Station Street", "Chapel Row", "Orchard Way", "Kiln Street", "Ropewalk", "Tannery Yard"]
CITIES = ["Leeds", "Ghent", "Porto", "Aarhus", "Graz", "Tartu", "Cork", "Lyon", "Malmö", "Kraków"]
CARRIERS = ["ParcelFox", "NordFreight", "QuickCart"]
DAYNAMES = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]
MONTHS = ["August", "September", "October", "November"]
DEFECTS = ["a crack along the edge", "a scratch on the top", "a missing screw", "a loose joint", "a dent in one corner", "a torn seam"]

# intent -> turns of a conversation in order, each a list of (question, answer) variants.

INTENTS = {
    "refund": [
        [
            ("I would like to return the {product} from order {order} and get my money back.",
             "I can help you return the {product} from order {order}. A return label is on its way to your e-mail, and the refund of {amount} EUR follows once the parcel reaches us."),
            ("The {product} arrived with {defect}. Can I get a refund for order {order}?",
             "I am sorry that the {product} arrived with {defect}. I have opened a refund of {amount} EUR for order {order}; you can keep or recycle the damaged item."),
            ("Please cancel {order} and refund me, I ordered the wrong colour of the {product}.",
             "Order {order} is cancelled. You will get {amount} EUR back for the {product}, and you can order the right colour at any time."),
        ],
        [
            ("How long does the refund take?",
             "A refund takes 3 to 5 working days after we receive the parcel, and then up to 2 days at your bank."),
            ("When will I see the {amount} EUR on my card?",
             "The {amount} EUR should appear on the card ending in {card} by {day}, at the latest {number} days after we book it."),
        ],
        [
            ("Do I have to pay for the return shipping?",
             "No, return shipping is free within 60 days of delivery. Use the label that we sent you."),
            ("Where do I drop off the return parcel in {city}?",
             "In {city} you can hand the return parcel in at any {carrier} counter; the nearest one is on {street}."),
        ],
        [
            ("Could I get store credit instead of money?",
             "Yes. I can turn the refund of {amount} EUR into store credit, and you would get 5 % on top of it."),
            ("Will you send a confirmation of the refund?",
             "Yes, a confirmation of the refund for order {order} goes to your e-mail address within the hour."),
        ],
    ],
    "delivery": [
        [
            ("Where is my order {order}? It should have arrived on {day}.",
             "Order {order} is with {carrier} and left the depot in {city} this morning. The new delivery date is {day2}."),
            ("The tracking page for {order} has not changed since {day}.",
             "The parcel {order} was scanned last on {day} in {city}. I have asked {carrier} to trace it and expect an answer within one working day."),
            ("Can you tell me when the {product} will be delivered?",
             "Your {product} is packed and will be delivered by {carrier} on {day2} between 9:00 and 13:00."),
        ],
        [
            ("Can the driver leave the parcel with a neighbour?",
             "Yes, I have told {carrier} that the driver may leave the parcel with your neighbour at number {number}."),
            ("Could it be delivered in the evening instead?",
             "Yes, it can be delivered in the evening instead: I have booked the slot from 18:00 to 21:00 on {day2}."),
        ],
        [
            ("What happens if nobody is at home?",
             "If nobody is at home, the driver tries again on the next working day and then takes the parcel to a pick-up point near you."),
            ("Is there a pick-up point near {street} in {city}?",
             "Yes, there is a {carrier} pick-up point on {street} in {city}, open until 20:00 from Monday to Saturday."),
        ],
        [
            ("Will I get a message before it arrives?",
             "Yes, {carrier} sends you a text message one hour before the delivery arrives."),
            ("Do I have to sign for it?",
             "Yes, you have to sign for it: parcels worth more than 100 EUR need your signature."),
        ],
    ],
    "invoice": [
        [
            ("I need an invoice with our company name for order {order}.",
             "I have issued a new invoice for order {order} with your company name. You will find the PDF under Account, Invoices."),
            ("The invoice for {order} shows the wrong VAT number.",
             "Thank you for telling me. The VAT number on the invoice for {order} is corrected and the new PDF is in your mailbox."),
            ("Why was I charged {amount} EUR for order {order}?",
             "The {amount} EUR for order {order} are the price of the {product} and 4.90 EUR for shipping with {carrier}."),
        ],
        [
            ("Can I pay by bank transfer?",
             "Yes, you can pay by bank transfer. The account number is at the foot of the invoice, and the term of payment is 14 days."),
            ("Could you split the payment into {small} parts?",
             "Yes, we can split the payment of {amount} EUR into {small} monthly parts without interest; the agreement is in your mailbox."),
        ],
        [
            ("Please send all invoices to our accounting address.",
             "All future invoices go to your accounting address as well; you can change it under Account, Billing."),
            ("Is the invoice from {month} paid?",
             "Yes, we received your payment for the {month} invoice on the {number}th; nothing is open."),
        ],
    ],
    "password": [
        [
            ("I can't log in, it says my password is wrong.",
             "I have sent you a link to set a new password. It works for 30 minutes, and you can log in right after that."),
            ("How do I reset my password?",
             "Choose Forgot password on the login page, enter your e-mail address and follow the link in the message that we send you."),
            ("My account is locked after {small} attempts to log in.",
             "Your account was locked after {small} failed attempts. I have unlocked it; please set a new password before you log in again."),
        ],
        [
            ("The reset e-mail does not arrive.",
             "Please look in your spam folder first. I have sent the reset e-mail again to the address that ends in {card}.example."),
            ("The link to reset my password says that it has expired.",
             "A link to reset the password expires after 30 minutes. I have sent you a fresh one that has not expired."),
        ],
        [
            ("Can I turn on two-step login?",
             "Yes, open Account, Security and turn on two-step login. You will need an authenticator app on your phone."),
            ("How can I see where I am logged in?",
             "Account, Security lists all devices that are logged in, and you can log each of them out there."),
        ],
    ],
    "address": [
        [
            ("I am moving to {street} {number} in {city}. Please change my address.",
             "Your address is now {street} {number}, {city}. Orders that have not been packed yet go to the new address."),
            ("Order {order} has my old address, can you change it to {street} {number}, {city}?",
             "Order {order} has not left the warehouse, so I have changed the delivery address to {street} {number}, {city}."),
        ],
        [
            ("Can I keep the old one as the billing address?",
             "Yes, the old address stays as your billing address and only the delivery address has changed."),
            ("Please write {name} on the parcel.",
             "The parcel will be addressed to {name}. I have saved the name with your delivery address."),
        ],
        [
            ("Do you deliver to {city} on Saturdays?",
             "Yes, in {city} {carrier} delivers on Saturdays until 14:00 at no extra cost."),
            ("How many addresses can I save?",
             "You can save up to 10 delivery addresses in your account and pick one of them for each order."),
        ],
    ],
    "warranty": [
        [
            ("After {small} months the {product} has {defect}. Is that covered by the warranty?",
             "Yes, the {product} has a warranty of 3 years, and {defect} is covered. I can send a replacement part or a new item."),
            ("How long is the warranty on the {product}?",
             "The {product} comes with a warranty of 3 years from the day of delivery; your order {order} is the proof of purchase."),
        ],
        [
            ("A replacement part would be fine.",
             "I have ordered the replacement part for you. It is free of charge and leaves our workshop on {day}."),
            ("Do you need photos of the damage?",
             "Yes, please send two photos of the damage, one of them with the label under the item, by replying to our e-mail."),
        ],
        [
            ("Can I repair it myself?",
             "Yes, the repair takes about {number} minutes with a hex key. The instructions are in the parcel with the part."),
            ("Does the warranty pass on if I sell it?",
             "Yes, the warranty belongs to the item: hand the invoice to the new owner and it stays valid."),
        ],
    ],
}

# Questions about products: facet -> variants.
FACETS = {
    "material": [
        ("What is the {product} made of?", "The {product} is made of {material}."),
        ("Which material is used for the {product}?", "We make the {product} from {material}, sourced in Europe."),
    ],
    "size": [
        ("How big is the {product}?", "The {product} measures {size}."),
        ("Will the {product} fit into a small room? What is its size?", "With {size} the {product} fits well into a small room."),
    ],
    "weight": [
        ("How heavy is the {product}?", "The {product} has a weight of {weight} kg, so {carriers} can carry it."),
        ("Can one person carry the {product}?", "It takes {carriers} to carry the {product}: its weight is {weight} kg."),
    ],
    "price": [
        ("What does the {product} cost?", "The price of the {product} is {price} EUR, including VAT."),
        ("Is there a discount on the {product}?", "There is no discount at the moment: the {product} costs {price} EUR. Newsletter readers get 10 % off their first order."),
    ],
    "colour": [
        ("Which colours does the {product} come in?", "You can choose between these colours for the {product}: {colours}."),
        ("Is the {product} available in green?", "The {product} is available in {colours}."),
    ],
    "care": [
        ("How do I clean the {product}?", "Clean the {product} with a damp cloth and mild soap, and keep bleach away from the {material}."),
        ("Does the {product} need special care?", "The {product} needs little special care: keep it dry, and treat the {material} twice a year with the balm from our shop."),
    ],
    "stock": [
        ("Is the {product} in stock?", "Yes, we have {number} pieces of the {product} in our warehouse in {city}."),
        ("When will the {product} be available again?", "The next batch of the {product} reaches our warehouse in {city} on {day}."),
    ],
    "lead_time": [
        ("How fast could you ship the {product} to {city}?", "If you order today, {carrier} brings the {product} to {city} by {day}."),
        ("Can I pick up the {product} in the shop?", "Yes, you can pick up the {product} in our shop in {city} two hours after ordering."),
    ],
}

CLOSINGS = [
    ("Thanks, that is all.", "You are welcome, and thank you. That is all from my side too."),
    ("Great, thank you very much!", "Great, and thank you very much for writing to us!"),
    ("Perfect, thanks for your help.", "Perfect! Thanks for your message, I am glad that I could help."),
]

FOREIGN = [
    ("Wo ist meine Bestellung {order}? Sie sollte schon am Montag ankommen.",
     "Ihre Bestellung {order} ist bei {carrier} und kommt übermorgen an. Entschuldigen Sie bitte die Verspätung."),
    ("Puis-je être remboursé pour la théière ? Elle est arrivée cassée.",
     "Bien sûr, nous vous remboursons {amount} € pour la théière cassée sous cinq jours."),
    ("¿Cuánto cuesta el envío a Málaga?", "El envío a Málaga cuesta 4,90 € y tarda tres días."),
    ("Czy mogę zmienić adres dostawy zamówienia {order}?", "Tak, adres dostawy zamówienia {order} został zmieniony."),
    ("この急須の容量はどのくらいですか？", "この急須の容量は1.2リットルです。"),
    ("Kan jag få fakturan på svenska? 😊", "Självklart, fakturan för {order} finns nu på svenska i ditt konto. 👍"),
    ("Σε ποιες αποχρώσεις υπάρχει το χαλί;", "Το χαλί υπάρχει σε γκρι, εκρού και καφέ."),
    ("Can you write „{name} & Töchter“ on the invoice?", "The invoice for order {order} now says „{name} & Töchter“."),
]

# A derailed agent answers about something else.
OFF_TOPIC = [
    "The forecast for {city} is light rain in the morning and up to {number} degrees in the afternoon.",
    "To make the dough, mix flour and water, let it rest for {number} minutes and fold it {small} times.",
    "The match ended two to one after a late goal in the second half.",
    "Photosynthesis turns light, water and carbon dioxide into sugar and oxygen.",
    "Our museum shows {number} paintings of the harbour of {city}, most of them from the nineteenth century.",
    "Here is a list of birds that you may see in winter: siskin, brambling, waxwing and fieldfare.",
    "The train to {city} leaves from platform {small} and takes about two hours.",
    "A haiku has seventeen syllables, in three lines of five, seven and five.",
    "Saturn has rings of ice and dust, and at least {number} moons.",
    "def reverse(items): return items[::-1]  # runs in linear time",
]

# A looping agent gives the same answer again, at most with another opening, whatever the customer says.
LOOPS = {
    "refund": "Please send the {product} back with the return label that you find in your account under order {order}, and the refund will follow.",
    "delivery": "Your parcel {order} is on its way with {carrier}. Please follow the tracking link in the e-mail that we sent you on {day}.",
    "invoice": "You can download the invoice for order {order} in your account under Invoices; it shows the full amount of {amount} EUR.",
    "password": "Please choose Forgot password on the login page and follow the link in the e-mail to set a new password.",
    "address": "You can change the address for order {order} in your account under Addresses, as long as it has not been packed in {city}.",
    "warranty": "Please fill in the warranty form for the {product} on our website and attach the invoice of order {order}.",
}
OPENINGS = ["", "", "I understand. ", "Sorry for the trouble. ", "As I said: "]
COMPLAINTS = [
    "That does not help, I have done this already.",
    "You told me this before. What else can I do about order {order}?",
    "It still does not work.",
    "I tried that twice on {day}. Please do something else.",
    "Can I talk to a person, please?",
    "That is not what I asked.",
]

NOTHING = [("", "ERROR"), (None, "ERROR"), ("", "COMPLETED"), (None, "COMPLETED")]


class Shop:
    """Draws sessions. All randomness comes from one seeded generator."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.rows = []
        self.sessions = 0

    def slots(self):
        rng = self.rng
        product = rng.choice(sorted(PRODUCTS))
        material, size, weight, price, colours = PRODUCTS[product]
        day, day2 = rng.sample(DAYNAMES, 2)
        return {
            "product": product, "material": material, "size": size, "weight": weight, "price": price, "colours": colours,
            "carriers": "one person" if weight < 8 else "two people",
            "order": f"TB-{rng.randrange(100000, 1000000)}", "amount": f"{price + 4.9:.2f}", "card": f"{rng.randrange(10000):04d}",
            "number": rng.randrange(5, 29), "small": rng.randrange(2, 6), "day": day, "day2": day2, "month": rng.choice(MONTHS),
            "street": rng.choice(STREETS), "city": rng.choice(CITIES), "carrier": rng.choice(CARRIERS),
            "name": rng.choice(FIRST), "defect": rng.choice(DEFECTS),
        }

    def pick(self, variants, slots):
        question, answer = self.rng.choice(variants)
        return question.format(**slots), answer.format(**slots)

    def service_turns(self, intent, count):
        """A conversation about one order: the intent's turns in order, then a closing."""
        slots = self.slots()
        turns = [self.pick(variants, slots) for variants in INTENTS[intent]][: max(1, count - 1)]
        if len(turns) < count:
            turns.append(self.rng.choice(CLOSINGS))
        return turns

    def product_turns(self, count):
        """Questions about products; within four turns no facet comes twice."""
        turns, recent = [], []
        slots = self.slots()
        while len(turns) < count:
            facet = self.rng.choice([f for f in FACETS if f not in recent])
            recent = (recent + [facet])[-4:]
            if self.rng.random() < 0.35:
                slots = self.slots()
            turns.append(self.pick(FACETS[facet], slots))
        return turns

    def healthy_turns(self, intent, count):
        return self.product_turns(count) if intent == "product" else self.service_turns(intent, count)

    def looping_turns(self, intent, repeats):
        slots = self.slots()
        turns = [self.pick(INTENTS[intent][0], slots)]
        complaints = self.rng.sample(COMPLAINTS, repeats)
        same = LOOPS[intent].format(**slots)
        turns += [(c.format(**slots), self.rng.choice(OPENINGS) + same) for c in complaints]
        return turns

    def derailed_turns(self, intent, count):
        """Starts well, then answers about something else."""
        turns = self.healthy_turns(intent, count)
        start = self.rng.randrange(0, 2)
        others = self.rng.sample(OFF_TOPIC, len(turns))
        slots = self.slots()
        return [(q, a if i < start else others[i].format(**slots)) for i, (q, a) in enumerate(turns)]

    def trace(self, session_id, user, environment, at, turn, question, answer, status, design, intent):
        took = timedelta(milliseconds=self.rng.randrange(600, 9000))
        metadata = {"design": design, "intent": intent, "turn": turn}
        row = {
            "trace_id": str(uuid.UUID(int=self.rng.getrandbits(128), version=4)),
            "session_id": session_id, "started_at": at, "ended_at": at + took,
            "name": "support-agent", "status": status, "environment": environment, "user_id": user,
            "input": question, "output": answer, "metadata": json.dumps(metadata),
        }
        self.rows.append(row)
        return row

    def session(self, design, intent, turns, start=None):
        rng = self.rng
        self.sessions += 1
        at = start or rng.choice(DAYS) + timedelta(seconds=rng.randrange(7 * 3600, 20 * 3600), milliseconds=rng.randrange(1000))
        session_id = f"chat-{self.sessions:04d}-{rng.getrandbits(32):08x}"
        user = f"cust-{rng.randrange(1000, 1400)}"
        environment = "staging" if rng.random() < 0.08 else "production"
        for turn, (question, answer, *status) in enumerate(turns, 1):
            self.trace(session_id, user, environment, at, turn, question, answer, status[0] if status else "COMPLETED", design, intent)
            at += timedelta(seconds=rng.randrange(20, 150), milliseconds=rng.randrange(1000))

    def without_some_outputs(self, turns):
        """About half of the answers become empty or null."""
        chosen = set(self.rng.sample(range(len(turns)), max(1, len(turns) // 2)))
        return [(q, *self.rng.choice(NOTHING)) if i in chosen else (q, a) for i, (q, a) in enumerate(turns)]

    def with_foreign_turns(self, turns):
        others = self.rng.sample(FOREIGN, 2)
        places = self.rng.sample(range(len(turns)), 2)
        return [self.pick([others.pop()], self.slots()) if i in places else t for i, t in enumerate(turns)]


def support_rows(seed):
    """All traces of datasets/support, in no particular order of sessions."""
    shop = Shop(seed)
    rng = shop.rng
    intents = [*INTENTS, "product"]

    def intent_of(i):
        return intents[i % len(intents)]

    def near_midnight():
        return DAYS[1] - timedelta(seconds=rng.randrange(60, 150))

    for i in range(68):
        shop.session("healthy", intent_of(i), shop.healthy_turns(intent_of(i), rng.randrange(3, 6)))
    for i in range(6):
        shop.session("healthy", intent_of(i), shop.with_foreign_turns(shop.healthy_turns(intent_of(i), rng.randrange(3, 6))))
    for i in range(6):
        shop.session("healthy", "product", shop.product_turns(rng.randrange(5, 8)), near_midnight())
    for i in range(12):
        shop.session("loop", [*LOOPS][i % len(LOOPS)], shop.looping_turns([*LOOPS][i % len(LOOPS)], rng.randrange(3, 6)))
    for intent in ("delivery", "refund"):
        shop.session("loop", intent, shop.looping_turns(intent, 5), near_midnight())
    for i in range(12):
        shop.session("derailed", intent_of(i), shop.derailed_turns(intent_of(i), rng.randrange(3, 6)))
    for i in range(9):
        shop.session("empty_outputs", intent_of(i), shop.without_some_outputs(shop.healthy_turns(intent_of(i), rng.randrange(4, 7))))
    for i in range(4):
        shop.session("long", "product", shop.product_turns(rng.randrange(25, 33)))
    # A long conversation that is fine for 20 turns and then gets stuck.
    shop.session("long_then_loop", "refund", shop.product_turns(20) + shop.looping_turns("refund", 5))

    for i in range(14):
        question, answer = shop.pick(rng.choice(list(FACETS.values())), shop.slots())
        at = rng.choice(DAYS) + timedelta(seconds=rng.randrange(86400), milliseconds=rng.randrange(1000))
        shop.trace(None, f"cust-{rng.randrange(1000, 1400)}", "production", at, 1, question, answer, "COMPLETED", "no_session", "product")
    return shop.rows


def signal_rows(rows, seed):
    """What a judge might have said: high for good traces, low for bad ones; missing for a tenth, sometimes null."""
    rng = random.Random(seed + 1)
    means = {"loop": (0.45, 0.55), "derailed": (0.3, 0.4), "empty_outputs": (0.5, 0.6)}
    signals = []
    for row in rows:
        metadata = json.loads(row["metadata"])
        means_of_trace = means.get(metadata["design"], (0.88, 0.92))
        if metadata["design"] == "long_then_loop" and metadata["turn"] > 21:
            means_of_trace = means["loop"]
        values = [round(min(1.0, max(0.0, rng.gauss(mean, 0.07))), 3) for mean in means_of_trace]
        values = [None if rng.random() < 0.05 else v for v in values]
        if rng.random() < 0.9:
            signals.append({"trace_id": row["trace_id"], "confidence": values[0], "tool_correctness": values[1]})
    return signals


def outcome_lines(rows):
    """Whether each session went well, as its design says, and when it began."""
    yield "session_id,outcome,day"
    sessions = {}
    for row in rows:
        if row["session_id"]:
            design = json.loads(row["metadata"])["design"]
            day = min(row["started_at"].date(), sessions.get(row["session_id"], (None, row["started_at"].date()))[1])
            sessions[row["session_id"]] = ("solved" if design in ("healthy", "long") else "failed", day)
    for session_id, (outcome, day) in sorted(sessions.items()):
        yield f"{session_id},{outcome},{day}"


def envelope(role, text):
    return json.dumps({"messages": [{"role": role, "content": text}]}, ensure_ascii=False)


def chat_lines(seed):
    """Small talk with the shop's chat window in another export format. Every third conversation holds JSON texts."""
    shop = Shop(seed + 2)
    rng = shop.rng
    intents = [*INTENTS, "product"]
    lines = []
    for conversation in range(15):
        at = DAYS[0] + timedelta(hours=8, minutes=rng.randrange(600))
        if conversation % 7 == 5:
            turns = shop.looping_turns(intents[conversation % len(LOOPS)], 3)
        else:
            turns = shop.healthy_turns(intents[conversation % len(intents)], 4)
        for question, answer in turns:
            if conversation % 3 == 2:
                question, answer = envelope("user", question), envelope("assistant", answer)
            line = {
                "id": str(uuid.UUID(int=rng.getrandbits(128), version=4)),
                "conversation": f"web-{conversation + 1:03d}",
                "at": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "question": question, "answer": answer,
            }
            lines.append(line)
            at += timedelta(seconds=rng.randrange(20, 150))
    return lines


def write_parquet(rows, schema, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, compression="zstd", compression_level=9)


def write_all(folder):
    """Writes every file under a folder and returns their paths."""
    rows = support_rows(SEED)
    paths = []
    for day in DAYS:
        path = folder / "support" / f"date={day:%Y-%m-%d}" / "part-0.parquet"
        of_day = [r for r in rows if r["started_at"].date() == day.date()]
        # As an exporter writes them: in the order in which the traces ended.
        write_parquet(sorted(of_day, key=lambda r: (r["ended_at"], r["trace_id"])), TRACE_SCHEMA, path)
        paths.append(path)
    signals = sorted(signal_rows(rows, SEED), key=lambda r: r["trace_id"])
    paths.append(folder / "support_signals.parquet")
    write_parquet(signals, SIGNAL_SCHEMA, paths[-1])
    paths.append(folder / "chats.jsonl")
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in chat_lines(SEED))
    paths[-1].write_text(text, encoding="utf-8", newline="\n")

    paths.append(folder / "support_outcomes.csv")
    paths[-1].write_text("".join(f"{line}\n" for line in outcome_lines(rows)), encoding="utf-8", newline="\n")

    ids = [r["trace_id"] for r in rows]
    if len(set(ids)) != len(ids):
        sys.exit("make_datasets: a trace id came twice")
    if {r["started_at"].date() for r in rows} != {d.date() for d in DAYS}:
        sys.exit("make_datasets: a trace lies outside the two days")
    return paths


def same_values(a, b):
    if a.suffix == ".parquet":
        with pq.ParquetFile(a) as left, pq.ParquetFile(b) as right:
            return left.read().equals(right.read())
    return a.read_bytes() == b.read_bytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "datasets", metavar="DIR", help="the folder (default: %(default)s)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file differs")
    args = parser.parse_args()
    if not args.check:
        for path in write_all(args.out):
            print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.stat().st_size:>7}  {path.relative_to(args.out)}")
        return
    with tempfile.TemporaryDirectory() as tmp:
        bad = 0
        for path in write_all(Path(tmp)):
            name = path.relative_to(tmp)
            if not (args.out / name).is_file() or not same_values(path, args.out / name):
                print(f"{args.out / name}: missing or different")
                bad += 1
        if bad:
            sys.exit(1)
        print(f"{args.out}: as expected")


if __name__ == "__main__":
    main()
