"""A lender's service that has nothing in common with the Deal Financing Service: it prints its port, and /facts what a reader should find."""
import base64
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

SECRET, REQUESTS_PER_TOKEN, MOST_ROWS = sys.argv[1], 20, 50
STATES = [0, 1, 3, 3, 2]
tokens = {"count": 0, "left": 0}
loans = {
    10_000 + n: {"minor": 10_000_001 * (n + 1), "state": STATES[n % 5], "worth": 20_000_000 * (n + 1), "day": n % 28 + 1}
    for n in range(137)
}


def listed(ref):
    loan = loans[ref]
    return {
        "ref": ref,
        "asset": {"addr": "%d Elm St, Dallas, TX 75201" % ref},
        "money": {"balance_minor": loan["minor"]},
        "state": loan["state"],
        "booked": "2026-01-%02d 10:00:00" % loan["day"],
        "desk": "south",
    }


class Service(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_POST(self):
        given = base64.b64decode(self.headers.get("Authorization", "Basic ")[6:]).decode()
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/night":
            loans[10_003].update(minor=1_99, state=2)
            loans[10_500] = {"minor": 5, "state": 0, "worth": 0, "day": 9}
            loans.pop(10_007, None)
            return self.answer(200, {})
        if self.path != "/token" or given != "desk:" + SECRET:
            return self.answer(401, {"error": "invalid_client"})
        tokens.update(count=tokens["count"] + 1, left=REQUESTS_PER_TOKEN)
        self.answer(200, {"access_token": "t%d" % tokens["count"], "expires_in": "3600"})

    def do_GET(self):
        url = urlsplit(self.path)
        if url.path == "/facts":
            funded = sum(loan["minor"] for loan in loans.values() if loan["state"] == 3)
            return self.answer(200, {"deals": len(loans), "minor": sum(l["minor"] for l in loans.values()), "funded_minor": funded, "tokens": tokens["count"]})
        if tokens["left"] <= 0 or self.headers.get("Authorization") != "Bearer t%d" % tokens["count"]:
            return self.answer(401, {})
        tokens["left"] -= 1
        if url.path == "/api/v3/loanbook":
            asked = parse_qs(url.query)
            after = int(asked.get("after", ["0"])[0])
            refs = [ref for ref in sorted(loans) if ref > after]
            rows = refs[: min(MOST_ROWS, int(asked["per"][0]))]
            more = len(refs) > len(rows)
            link = "loanbook?per=%s&after=%d" % (asked["per"][0], rows[-1]) if more else None
            return self.answer(200, {"page": {"content": [listed(ref) for ref in rows], "next": link}})
        ref = int(url.path.rsplit("/", 1)[1])
        if ref not in loans:
            return self.answer(404, {})
        loan = listed(ref)
        loan["asset"]["worth_minor"] = loans[ref]["worth"]
        self.answer(200, {"loan": {**loan, "scheme": "bridge_30yr"}})


server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
print(server.server_port, flush=True)
server.serve_forever()
