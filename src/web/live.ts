import {Readable} from 'node:stream'
import type {FastifyInstance} from 'fastify'
import {sleepUntilStopped} from '../core/clock.ts'
import type {World} from '../core/types.ts'
import {findLockHolder, type LockHolder} from '../store/lock.ts'
import {createPlaces, hangUpOf, LIVE_PATH, networkOf, refuseBusy} from './http-server.ts'
import {listOpenActions, type PageAction} from './page-actions.ts'
import type {WebTools} from './view.ts'

const EVERY_MS = 1000

/** Most open streams, in total and per address. */
const STREAMS = {all: 20, each: 4}

/** A stream ends after this time; an open page then begins another. */
const LONGEST_MS = 600_000

/** What is going on, in words: a run, or an action that has not begun one or is ending. */
export function describeUnderWay(
  holder: LockHolder | undefined,
  action: PageAction | undefined,
): {running: boolean; words: string} {
  if (holder) return {running: true, words: `${holder.command}: ${holder.progress}`}
  return action ? {running: true, words: action.command} : {running: false, words: 'idle'}
}

/** Adds `/runs/live`: server-sent events of the run under way. */
export function addLive(server: FastifyInstance, {stateDb}: WebTools, world: World): Disposable {
  const closing = new AbortController()
  const enter = createPlaces(STREAMS)
  async function* tell(gone: AbortSignal): AsyncGenerator<string> {
    const until = world.realClock.now() + LONGEST_MS
    const signal = AbortSignal.any([closing.signal, gone])
    let told = ''
    while (!signal.aborted && world.realClock.now() < until) {
      const news = JSON.stringify(
        describeUnderWay(findLockHolder(stateDb, world), listOpenActions(stateDb)[0]),
      )
      // A comment keeps the connection alive.
      yield news === told ? ':\n\n' : `data: ${news}\n\n`
      told = news
      await sleepUntilStopped(world.realClock, EVERY_MS, signal)
    }
  }
  server.get(LIVE_PATH, async (request, reply) => {
    const leave = enter(networkOf(request))
    if (!leave) return refuseBusy(request, reply, 'Too many pages watch the run under way.')
    reply.raw.once('close', leave)
    return reply.type('text/event-stream').send(Readable.from(tell(hangUpOf(reply))))
  })
  return {
    [Symbol.dispose]() {
      closing.abort()
    },
  }
}
