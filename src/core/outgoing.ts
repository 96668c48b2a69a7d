import {Agent, EnvHttpProxyAgent, Pool} from 'undici'
import {messageOf, newError} from './errors.ts'

const HERE = /^(localhost\.?|127(\.\d+){3}|0\.0\.0\.0|\[::1?\]|\[::ffff:7f.*\])$/

/** Whether a URL leads to this machine. */
export const isHere = (url: string | URL) => HERE.test(new URL(url).hostname)

/**
 * Opens the connections for requests to an address. They use the proxy of `HTTPS_PROXY` or `HTTP_PROXY`, unless `NO_PROXY`
 * exempts the host or it is this machine. Disposing the result closes them.
 *
 * @param given `timeoutMs` limits connecting, the wait for the headers, and the wait between two parts of a body;
 *   `maxResponseSize` limits a body, in bytes; `certificate` is the client's, in PEM
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
