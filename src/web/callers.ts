import type {Server} from 'node:http'
import type {Socket} from 'node:net'
import type {FastifyReply} from 'fastify'
import {newError} from '../errors.ts'

/** Takes a place for a caller; undefined where there is none. What is returned gives it back. */
export type Enter = (caller: string) => (() => void) | undefined

/** Places for all callers together, and for each address. */
export function createPlaces({all, each}: {all: number; each: number}): Enter {
  const taken = new Map<string, number>()
  let total = 0
  const change = (caller: string, by: number) => {
    const own = (taken.get(caller) ?? 0) + by
    total += by
    if (own === 0) taken.delete(caller)
    else taken.set(caller, own)
  }
  return (caller) => {
    if (total >= all || (taken.get(caller) ?? 0) >= each) return undefined
    change(caller, 1)
    return () => change(caller, -1)
  }
}

/** Does what a caller asks for when it is its turn. */
export type TakeTurn = <T>(caller: string, signal: AbortSignal, work: () => Promise<T>) => Promise<T>

/**
 * Lets so many callers run at once; the others wait, and each address gets one turn after the other, however much one of them asks.
 * Who hangs up gives its place back.
 *
 * @throws DeferredError `WEB_BUSY` where too many wait, in all or of one address
 */
export function createTurns({
  running,
  waiting,
  each,
}: {
  running: number
  waiting: number
  each: number
}): TakeTurn {
  const enter = createPlaces({all: running + waiting, each})
  /** What waits, by caller; the one whose turn was longest ago comes first. */
  const queues = new Map<string, (() => void)[]>()
  let free = running

  function startNext(): void {
    const [first] = queues
    if (!first || free === 0) return
    const [caller, queue] = first
    queues.delete(caller)
    const start = queue.shift()
    if (queue.length > 0) queues.set(caller, queue)
    free -= 1
    start?.()
  }

  return async (caller, signal, work) => {
    const leave = enter(caller)
    if (!leave)
      throw newError('WEB_BUSY', 'Too much is asked for at this moment: expected fewer questions at once.')
    try {
      signal.throwIfAborted()
      await new Promise<void>((start, giveUp) => {
        queues.set(caller, [...(queues.get(caller) ?? []), start])
        signal.addEventListener('abort', () => {
          const others = queues.get(caller)?.filter((one) => one !== start) ?? []
          if (others.length > 0) queues.set(caller, others)
          else queues.delete(caller)
          giveUp(signal.reason)
        })
        startNext()
      })
      try {
        return await work()
      } finally {
        free += 1
        startNext()
      }
    } finally {
      leave()
    }
  }
}

/** Aborts once a caller has hung up before it had the whole answer. */
export function hangUpOf({raw}: FastifyReply): AbortSignal {
  const gone = new AbortController()
  raw.once(
    'close',
    () =>
      raw.writableFinished || gone.abort(newError('QUERY_STOPPED', 'Query stopped: nobody waits for it.')),
  )
  return gone.signal
}

/**
 * Keeps connections for those who come: beyond `most`, the oldest one on which nothing is being answered is closed, of the address
 * that has most of them.
 *
 * @returns what marks a connection as one that is being answered, until what that returns is called
 */
export function limitConnections(server: Server, most: number): (socket: Socket) => () => void {
  const open = new Set<Socket>()
  const answered = new Map<Socket, number>()
  server.on('connection', (socket: Socket) => {
    open.add(socket)
    socket.once('close', () => open.delete(socket))
    if (open.size <= most) return
    const waiting = Map.groupBy(
      [...open].filter((one) => !answered.has(one)),
      ({remoteAddress = ''}) => remoteAddress,
    )
    const [of] = [...waiting.values()].toSorted((a, b) => b.length - a.length)
    of?.[0]?.destroy()
  })
  return (socket) => {
    answered.set(socket, (answered.get(socket) ?? 0) + 1)
    return () => {
      const left = (answered.get(socket) ?? 0) - 1
      if (left > 0) answered.set(socket, left)
      else answered.delete(socket)
    }
  }
}
