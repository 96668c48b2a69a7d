import {Agent, EnvHttpProxyAgent, Pool} from 'undici'
import {messageOf, newError} from './errors.ts'

const HERE = /^(localhost\.?|127(\.\d+){3}|0\.0\.0\.0|\[::1?\]|\[::ffff:7f.*\])$/

/**
 * Opens what requests to an address go out by: the proxy that `HTTPS_PROXY` or `HTTP_PROXY` of the environment names, unless `NO_PROXY`
 * leaves the host out, or it is this machine. Disposing it ends its connections.
 *
 * @param given `timeoutMs` is for a connection, for the head of an answer, and between two parts of its body; `maxResponseSize` for that
 * body, in bytes; `certificate` shows who asks, in PEM
 * @throws ConfigError `CONFIG_INVALID` for a proxy that is no URL
 */
export function openAgent(
  url: string | URL,
  given: {timeoutMs: number; maxResponseSize?: number; certificate?: {cert?: string; key?: string}},
) {
  const {timeoutMs, certificate, ...more} = given
  const limits = {headersTimeout: timeoutMs, bodyTimeout: timeoutMs, ...more}
  const connect = {timeout: timeoutMs, ...certificate}
  const isHere = HERE.test(new URL(url).hostname)
  const agent = isHere ? new Agent({...limits, connect}) : openProxied(limits, connect)
  return Object.assign(agent, {[Symbol.asyncDispose]: () => agent.destroy()})
}

function openProxied(limits: Agent.Options, connect: {timeout: number}): EnvHttpProxyAgent {
  try {
    return new EnvHttpProxyAgent({
      ...limits,
      connect,
      // Requests that a proxy forwards instead would have none of the limits.
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
