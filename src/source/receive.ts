import type {Dispatcher} from 'undici'
import {RetryableError} from '../errors.ts'
import type {ResponseHeaders} from './limit-headers.ts'

/** One answer as it came, whole. */
interface Answer {
  status: number
  headers: ResponseHeaders
  body: Buffer
}

/**
 * Sends a GET and receives the whole answer. Its parts are taken as they come: through a stream and a signal of its own a page takes
 * a third more time.
 *
 * @param end when it is given up: on a signal, or after a while, for a body that drips never times out between two parts
 * @throws RetryableError `SOURCE_UNREACHABLE` after that while; the signal's reason; what undici throws
 */
export function receive(
  pool: Dispatcher,
  request: {path: string; headers: Record<string, string>},
  {signal, timeoutMs}: {signal: AbortSignal; timeoutMs: number},
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted()
    const parts: Buffer[] = []
    let head: Omit<Answer, 'body'> = {status: 0, headers: {}}
    let sent: Dispatcher.DispatchController | undefined
    let isOver = false
    const timer = setTimeout(() => {
      fail(new RetryableError({code: 'SOURCE_UNREACHABLE', problem: 'answer not complete in time'}))
    }, timeoutMs)
    const stop = () => fail(signal.reason)
    signal.addEventListener('abort', stop)
    const finish = () => {
      isOver = true
      clearTimeout(timer)
      signal.removeEventListener('abort', stop)
    }
    const fail = (reason: Error) => {
      finish()
      reject(reason)
      sent?.abort(reason)
    }
    pool.dispatch(
      {method: 'GET', ...request},
      {
        onRequestStart(controller) {
          sent = controller
          if (isOver) controller.abort(new Error('given up before it was sent'))
        },
        onResponseStart(_, status, headers) {
          head = {status, headers}
        },
        onResponseData(_, part) {
          parts.push(part)
        },
        onResponseEnd() {
          finish()
          resolve({...head, body: Buffer.concat(parts)})
        },
        onResponseError(_, error) {
          finish()
          reject(error)
        },
      },
    )
  })
}
