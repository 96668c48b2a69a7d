"""Checks this folder of evidence without loantape: Python 3.8 or later, nothing to install.

    python3 check.py

It makes sure that
1. every line follows the one before (sha256), and all of them lead to the line that the release names,
2. every answer in responses.warc.gz is the one whose sha256 stands in its line, and none is missing; of an answer that is
   shown without the fields that the contract does not know, nobody can work out the sha256 again: it proves nothing by itself,
   and of one that loantape translated by source.json the sha256 proves only what loantape read,
3. the records of the answers add up to the certificate of each walk, to the cent,
4. the certificate leads to the totals of the release, and each file of the batch is the one its manifest names; a batch of a
   journal is the one that an act on the tapes issued.

`warcio check responses.warc.gz` and other tools for ISO 28500 read the answers, too.
"""

import gzip
import hashlib
import json
import os
import sys
from decimal import Decimal

HERE = os.path.dirname(os.path.abspath(__file__))
MARK = ',"chain":"'


def fail(problem):
    sys.exit("NOT PROVEN: " + problem)


def read_json(*path):
    with open(os.path.join(HERE, *path), encoding="utf-8") as file:
        return json.load(file, parse_float=Decimal)


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def read_tape(name):
    """Yields (number, frame, chain) of each line; ends when one does not follow the line before."""
    chain = "0" * 64
    with open(os.path.join(HERE, "tapes", name), encoding="utf-8", newline="\n") as file:
        for number, text in enumerate(file, 1):
            at = text.index(MARK)
            covered = text[:at] + "}"
            chain = sha256((chain + "\n" + covered).encode("utf-8"))
            if text[at + len(MARK):].rstrip("\n") != chain + '"}':
                fail("tapes/%s line %d does not follow the line before" % (name, number))
            yield number, json.loads(covered), chain


def check_chain(evidence):
    """The lines of every tape, and the way from the line that the release names back to the first of them."""
    units, lines = {}, 0
    for name in evidence["tapes"]:
        for _, frame, chain in read_tape(name):
            lines += 1
            if frame["frame"] == "outcome":
                units[chain] = frame["previous"]
    head, reached = evidence["act_head"] or evidence["tape_head"], set()
    while head in units and head not in reached:
        reached.add(head)
        head = units[head]
    if evidence["tape_head"] not in reached:
        fail("no tape holds the line that the release names")
    if evidence["act_head"] and evidence["act_head"] not in reached:
        fail("no tape holds the act that issued the batch")
    if set(units) != reached:
        fail("the tapes hold a unit that does not lead there")
    if head != evidence["before"]:
        fail("the tapes lead back to %s, and not to %s" % (head, evidence["before"]))
    print("%d lines on %d tapes follow one another, %d units lead to the release" % (lines, len(evidence["tapes"]), len(reached)))


def read_answers():
    """Yields (line, body, sha256 of what was received) of each answer, in the order of the archive."""
    with gzip.open(os.path.join(HERE, "responses.warc.gz"), "rb") as archive:
        while archive.readline():
            fields = {}
            for text in iter(archive.readline, b"\r\n"):
                name, _, value = text.decode("utf-8").partition(": ")
                fields[name.lower()] = value.strip()
            block = archive.read(int(fields["content-length"]))
            archive.read(4)
            if fields["warc-type"] == "response":
                body = block[block.index(b"\r\n\r\n") + 4:]
                yield fields["loantape-line"], body, sha256(body)
            if fields["warc-type"] == "conversion":
                yield fields["loantape-line"], block, fields["loantape-received-digest"][len("sha256:"):]


def find_records(body):
    data = body["data"]
    return data if isinstance(data, list) else next(value for value in data.values() if isinstance(value, list))


def check_answers(evidence, certificates):
    """Each answer against its line, and the deals of each walk against its certificate."""
    answers, count, reduced, translated = read_answers(), 0, 0, 0
    for name in evidence["answers_of"]:
        certificate = certificates.get(name[: -len(".jsonl")])
        unread = {(bad["page"], bad["position"]) for bad in (certificate or {}).get("quarantined_places", [])}
        page = records = listed = 0
        amounts, is_translated = {}, False
        for number, frame, _ in read_tape(name):
            # What a described source answered is shown with all fields only; else, as the next line reads it.
            # What was replayed is a record of an earlier answer.
            if "sha256" not in frame or frame["frame"] == "replay" or (frame["frame"] == "received" and evidence["reduced"]):
                is_translated = frame["frame"] == "received"
                continue
            place, body, received = next(answers, (None, b"", None))
            if place != "%s:%d" % (name, number) or received != frame["sha256"]:
                fail("the answer of tapes/%s line %d is missing or another" % (name, number))
            count += 1
            if received != sha256(body):
                reduced += 1
            elif is_translated:
                translated += 1
            is_translated = False
            if frame["frame"] != "list":
                continue
            page += 1
            for position, record in enumerate(find_records(json.loads(body, parse_float=Decimal, parse_int=Decimal))):
                records += 1
                if (page, position) not in unread and record is not None:
                    listed += 1
                    amounts[record["id"]] = Decimal(str(record["loan_amount"]).strip())
        if certificate is None or certificate["state"] != "applied":
            continue
        found = {
            "records": records,
            "distinct": len(amounts),
            "duplicates": listed - len(amounts),
            "quarantined": len(unread),
            "amount_total": sum(amounts.values(), Decimal(0)),
        }
        for total, value in found.items():
            if Decimal(str(certificate[total])) != value:
                fail("walk %s: %s is %s in the certificate, and %s in the answers" % (name, total, certificate[total], value))
        print("walk %s: %d deals of %s in %d answers" % (certificate["walk_id"], len(amounts), found["amount_total"], page))
    if next(answers, None) is not None:
        fail("responses.warc.gz holds an answer that no line names")
    print("%d answers are those that were received" % (count - reduced - translated))
    if reduced:
        print("%d answers are shown without the fields that the contract does not know" % reduced)
    if translated:
        print("%d answers are shown as loantape reads them by source.json" % translated)
    return reduced + translated


def check_release(evidence, certificates):
    source = evidence["source"]
    certificate = certificates.get(source["walk_id"])
    if certificate is None:
        fail("there is no certificate of walk %s" % source["walk_id"])
    for total in ("records", "distinct", "duplicates", "quarantined", "amount_total"):
        if Decimal(str(source[total])) != Decimal(str(certificate[total])):
            fail("%s of the release is not that of its walk" % total)
    terms = [source[term] for term in ("kept_quarantined", "kept_missing", "adjusted")]
    deals = source["distinct"] + sum(term["deals"] for term in terms)
    amount = Decimal(source["amount_total"]) + sum(Decimal(term["amount"]) for term in terms)
    if deals != source["present"]["deals"] or amount != Decimal(source["present"]["amount"]):
        fail("the certificate does not lead to the totals of the release")
    print("release %s: %d deals of %s; its manifest names line" % (evidence["release_id"], deals, amount))
    print("  " + evidence["tape_head"])


def check_files(files, whose):
    """The files of the batch, all of them and no other."""
    batch = os.path.join(HERE, "batch")
    left = {os.path.join(folder, name) for folder, _, names in os.walk(batch) for name in names}
    for file in files:
        path = os.path.join(batch, *file["name"].split("/"))
        left.discard(path)
        with open(path, "rb") as content:
            if sha256(content.read()) != file["sha256"]:
                fail("batch/%s is not the file %s" % (file["name"], whose))
    for path in left - {os.path.join(batch, "manifest.json")}:
        fail("%s is no file of the batch" % os.path.relpath(path, HERE))


def check_act(evidence, manifest):
    """The batch against the act that issued it, and the act against its line."""
    name = evidence["tapes"][-1]
    lines = [frame["sha256"] for _, frame, _ in read_tape(name) if frame["frame"] == "act"]
    with open(os.path.join(HERE, "act.json"), "rb") as file:
        content = file.read()
    if lines != [sha256(content)]:
        fail("act.json is not the act on tapes/%s" % name)
    act = json.loads(content)
    named = ("profile", "batch_id", "period")
    issued = [one for one in act["batches"] if all(one[key] == manifest.get(key) for key in named)]
    if len(issued) != 1:
        fail("the act did not issue batch %s" % manifest["batch_id"])
    check_files(issued[0]["files"], "that was issued")
    print("batch %s: issued at %s with these %d files, on tapes/%s" % (manifest["batch_id"], act["at"], len(issued[0]["files"]), name))
    print("  the line of this act: " + evidence["act_head"])


def check_batch(evidence):
    if evidence["batch_id"] is None:
        return
    manifest = read_json("batch", "manifest.json")
    if manifest["batch_id"] != evidence["batch_id"]:
        fail("batch holds %s" % manifest["batch_id"])
    for key in ("release_id", "known_at", "history_id", "source"):
        if manifest[key] != evidence[key]:
            fail("%s is not that of the batch" % key)
    check_files(manifest["files"], "its manifest names")
    if evidence["act_head"]:
        return check_act(evidence, manifest)
    if manifest["profile"] not in ("csv", "parquet", "xlsx"):
        fail("no act issued batch %s" % manifest["batch_id"])
    print("batch %s: %d files are those of its manifest" % (manifest["batch_id"], len(manifest["files"])))
    with open(os.path.join(HERE, "batch", "manifest.json"), "rb") as content:
        print("  sha256 %s: compare it with that of the manifest the lender keeps" % sha256(content.read()))


def main():
    evidence = read_json("evidence.json")
    certificates = {one["walk_id"]: one for one in read_json("certificates.json")}
    check_chain(evidence)
    not_as_received = check_answers(evidence, certificates)
    check_release(evidence, certificates)
    check_batch(evidence)
    print("PROVEN, BUT FOR THE ANSWERS: `loantape evidence --all-fields` shows them as they came" if not_as_received else "PROVEN")


try:
    main()
except Exception as error:
    fail("this folder is damaged: %s: %s" % (type(error).__name__, error))
