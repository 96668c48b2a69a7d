import {addAbortListener} from 'node:events'
import type {IncomingHttpHeaders} from 'node:http'
import {Agent, type Dispatcher, EnvHttpProxyAgent, Pool} from 'undici'
import {messageOf, newError, RetryableError} from './errors.ts'
import {isHere} from './text.ts'

/**
 * Opens connections through the proxy of `HTTPS_PROXY` or `HTTP_PROXY`, unless `NO_PROXY` exempts the host or it is this machine.
 * @param given `timeoutMs` limits connecting, the wait for the headers, and the wait between two parts of a body;
 * `maxResponseSize` limits a body, in bytes; `certificate` is the client's, in PEM
 * @throws ConfigError `CONFIG_INVALID` if the proxy is not a URL
 */
export function openAgent(
  url: string | URL,
  given: {timeoutMs: number; maxResponseSize?: number; certificate?: {cert?: string; key?: string}},
) {
  const {timeoutMs, certificate, ...more} = given
  const limits = {headersTimeout: timeoutMs, bodyTimeout: timeoutMs, ...more}
  const connect = {timeout: timeoutMs, ...certificate}
  const agent = isHere(url) ? new Agent({...limits, connect}) : openProxied(limits, connect)
  return Object.assign(agent, {[Symbol.asyncDispose]: () => agent.destroy()})
}

function openProxied(limits: Agent.Options, connect: {timeout: number}): EnvHttpProxyAgent {
  try {
    return new EnvHttpProxyAgent({
      ...limits,
      connect,
      // Without a tunnel, requests through the proxy would have none of these limits.
      proxyTunnel: true,
      requestTls: connect,
      connectTimeout: connect.timeout,
      clientFactory: (proxy, given) => new Pool(proxy, {...limits, ...given}),
    })
  } catch (cause) {
    const problem = `HTTPS_PROXY or HTTP_PROXY of the environment (${messageOf(cause)}): expected a URL such as http://proxy.example.com:3128.`
    throw newError('CONFIG_INVALID', problem, {cause})
  }
}

/** How many timeouts a whole answer may take: a dripping one never times out between two parts. */
const TIMEOUTS_PER_ANSWER = 10

/**
 * Collects the answer part by part: with a stream and a signal of its own, a page would take a third longer. Ends at once on the
 * signal, even before there is a connection.
 * @throws RetryableError if the whole answer takes longer than ten timeouts; the signal's reason
 */
export async function receive(
  agent: Dispatcher,
  request: Dispatcher.DispatchOptions,
  {signal, timeoutMs}: {signal: AbortSignal; timeoutMs: number},
) {
  signal.throwIfAborted()
  const {promise, resolve, reject} = Promise.withResolvers<void>()
  const answer = {status: 0, headers: {} as IncomingHttpHeaders}
  const parts: Buffer[] = []
  let sent: Dispatcher.DispatchController | undefined
  let ended: Error | undefined
  const end = (reason: Error) => {
    ended = reason
    reject(reason)
    sent?.abort(reason)
  }
  const giveUp = () =>
    end(new RetryableError({code: 'SOURCE_UNREACHABLE', problem: 'answer not complete in time'}))
  // Cleared afterwards: those of `AbortSignal.timeout` would pile up.
  const timer = setTimeout(giveUp, timeoutMs * TIMEOUTS_PER_ANSWER)
  using _stop = addAbortListener(signal, () => end(signal.reason))
  try {
    agent.dispatch(request, {
      onRequestStart(controller) {
        sent = controller
        if (ended) controller.abort(ended)
      },
      onResponseStart: (_, status, headers) => void Object.assign(answer, {status, headers}),
      onResponseData: (_, part) => void parts.push(part),
      onResponseEnd: () => resolve(),
      onResponseError: (_, error) => reject(error),
    })
    await promise
    return {...answer, body: Buffer.concat(parts)}
  } finally {
    clearTimeout(timer)
  }
}
