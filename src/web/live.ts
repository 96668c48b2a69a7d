import {Readable} from 'node:stream'
import type {FastifyInstance} from 'fastify'
import {sleepUntilStopped} from '../clock.ts'
import {findLockHolder, type LockHolder} from '../state/lock.ts'
import {listOpenActions, type PageAction} from '../state/page-actions.ts'
import type {World} from '../types.ts'
import type {WebTools} from './overview.ts'

const EVERY_MS = 1000

/** What is under way, in words: a run, or what somebody asked for that has not begun one or ends. */
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
  async function* tell(): AsyncGenerator<string> {
    let told = ''
    while (!closing.signal.aborted) {
      const news = JSON.stringify(
        describeUnderWay(findLockHolder(stateDb, world), listOpenActions(stateDb)[0]),
      )
      // A comment keeps the connection where there is nothing new.
      yield news === told ? ':\n\n' : `data: ${news}\n\n`
      told = news
      await sleepUntilStopped(world.realClock, EVERY_MS, closing.signal)
    }
  }
  server.get('/runs/live', async (_request, reply) =>
    reply.type('text/event-stream').send(Readable.from(tell())),
  )
  return {
    [Symbol.dispose]() {
      closing.abort()
    },
  }
}
