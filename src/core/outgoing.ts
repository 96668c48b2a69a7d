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
 * Ends at once on the signal, even before there is a connection, which undici would wait for.
 * @throws RetryableError if the whole answer takes longer than ten timeouts; the signal's reason
 */
export async function receive(
  agent: Dispatcher,
  request: Omit<Dispatcher.RequestOptions, 'signal'>,
  {signal, timeoutMs}: {signal: AbortSignal; timeoutMs: number},
) {
  const late = new AbortController()
  const giveUp = () => {
    late.abort(new RetryableError({code: 'SOURCE_UNREACHABLE', problem: 'answer not complete in time'}))
  }
  // Cleared afterwards: those of `AbortSignal.timeout` would pile up.
  const timer = setTimeout(giveUp, timeoutMs * TIMEOUTS_PER_ANSWER)
  const within = AbortSignal.any([signal, late.signal])
  const ended = Promise.withResolvers<never>()
  const end = () => ended.reject(within.reason)
  within.addEventListener('abort', end)
  try {
    within.throwIfAborted()
    const answer = await Promise.race([agent.request({...request, signal: within}), ended.promise])
    const body = Buffer.from(await answer.body.arrayBuffer())
    return {status: answer.statusCode, headers: answer.headers, body}
  } finally {
    clearTimeout(timer)
    within.removeEventListener('abort', end)
  }
}
