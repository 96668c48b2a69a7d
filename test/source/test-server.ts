import {createServer, type IncomingMessage, type Server, type ServerResponse} from 'node:http'
import {type AddressInfo, connect} from 'node:net'

interface SeenRequest {
  path: string
  query: URLSearchParams
  headers: IncomingMessage['headers']
  /** The request itself, to read its body from. */
  incoming: IncomingMessage
}

export interface TestServer extends AsyncDisposable {
  /** Includes the prefix `/v1`. */
  readonly url: string
  readonly requests: SeenRequest[]
}

/** Answers one request; `turn` counts requests from 0. */
export type Handler = (request: SeenRequest, response: ServerResponse, turn: number) => void | Promise<void>

export async function startTestServer(handler: Handler): Promise<TestServer> {
  const requests: SeenRequest[] = []
  const server = createServer((incoming, response) => {
    const {pathname, searchParams} = new URL(incoming.url ?? '/', 'http://test')
    const request = {path: pathname, query: searchParams, headers: incoming.headers, incoming}
    requests.push(request)
    void handler(request, response, requests.length - 1)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    requests,
    [Symbol.asyncDispose]: () => closeServer(server),
  }
}

function closeServer(server: Server): Promise<void> {
  server.closeAllConnections()
  return new Promise((resolve, reject) => server.close((error) => (error ? reject(error) : resolve())))
}

export function sendJson(
  response: ServerResponse,
  body: unknown,
  {status = 200, headers = {}}: {status?: number; headers?: Record<string, string>} = {},
): void {
  response.writeHead(status, {'content-type': 'application/json', ...headers}).end(JSON.stringify(body))
}

/** Starts a proxy that connects every name to the server at `url`. @param answer returns the status line for a name */
export async function startProxy(url: string, answer: (name: string) => string = () => '200 OK') {
  const proxy = createServer().on('connect', ({url: name = ''}, socket, head) => {
    const there = connect(Number(new URL(url).port), '127.0.0.1', () => {
      socket.write(`HTTP/1.1 ${answer(name)}\r\n\r\n`)
      there.write(head)
      there.pipe(socket).pipe(there)
    })
    for (const end of [socket, there]) end.on('error', () => undefined)
  })
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve))
  const {port} = proxy.address() as AddressInfo
  return {url: `http://127.0.0.1:${port}`, [Symbol.dispose]: () => void proxy.close()}
}

/** Lets everything in transit on loopback arrive, without a timer. */
export async function passTurns(): Promise<void> {
  for (let turn = 0; turn < 200; turn += 1) await new Promise(setImmediate)
}

/** Creates a promise that is settled from outside, for ordering requests without sleeping. */
export function createGate(): {opened: Promise<void>; open: () => void} {
  const {promise, resolve} = Promise.withResolvers<void>()
  return {opened: promise, open: resolve}
}
