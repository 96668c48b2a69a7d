"""ClickHouse over HTTP for tests: the engine of chdb, a connection of its own for each request at a time.

Usage: clickhouse-server.py FOLDER. Prints the port when it listens. User `loantape`, password `secret of the tests`.
"""
import base64
import os
import queue
import re
import sys
import tempfile
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import chdb

folder = sys.argv[1]
idle = queue.SimpleQueue()
main = chdb.connect(folder)
users = {'loantape': 'secret of the tests'}


def connect():
    try:
        return idle.get_nowait()
    except queue.Empty:
        return chdb.connect(folder)


class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *_):
        pass

    def answer(self, status, body, headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def read_body(self):
        if self.headers.get('Transfer-Encoding') != 'chunked':
            return self.rfile.read(int(self.headers.get('Content-Length') or 0))
        parts = []
        while True:
            size = int(self.rfile.readline(), 16)
            part = self.rfile.read(size)
            self.rfile.readline()
            if size == 0:
                return b''.join(parts)
            if len(part) < size:
                raise ConnectionError
            parts.append(part)

    def do_GET(self):
        self.answer(200, b'Ok.\n')

    def do_POST(self):
        given = dict(urllib.parse.parse_qsl(urllib.parse.urlparse(self.path).query, keep_blank_values=True))
        body = self.read_body()
        user, _, password = base64.b64decode(self.headers.get('Authorization', ' ').split(' ')[1]).decode().partition(':')
        if users.get(user) != password:
            error = f'Code: 516. DB::Exception: {user}: Authentication failed. (AUTHENTICATION_FAILED)'
            return self.answer(403, error.encode(), [('X-ClickHouse-Exception-Code', '516')])
        query = given.pop('query', None)
        data = None
        if query is None:
            query = body.decode()
        else:
            data = tempfile.NamedTemporaryFile(suffix='.parquet')
            data.write(body)
            data.flush()
            query = re.sub(r"from input\((.*)\) format Parquet\s*$", lambda m: f"from file('{data.name}', 'Parquet', {m[1]})", query, flags=re.S)
        given.pop('query_id', None)
        given.pop('database', None)
        connection = connect()
        try:
            for name, value in given.items():
                # As the server does for HTTP.
                if name in ('wait_end_of_query', 'default_format', 'session_id'):
                    continue
                value = value.replace('\\', '\\\\').replace("'", "\\'")
                connection.query(f"set {name} = '{value}'")
            result = connection.query(query, given.get('default_format', 'TSV'))
            self.answer(200, bytes(result.bytes()) if result.bytes() is not None else b'')
        except Exception as error:
            words = str(error)
            code = re.search(r'Code: (\d+)', words)
            self.answer(500, words.encode(), [('X-ClickHouse-Exception-Code', code[1] if code else '1001')])
        finally:
            idle.put(connection)
            if data:
                data.close()


server = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
server.daemon_threads = True
print(server.server_port, flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
# Ends with its parent.
sys.stdin.read()
# At once: the engine may take minutes to end by itself.
os._exit(0)
