import {type ChildProcess, fork} from 'node:child_process'
import {extname, join} from 'node:path'
import pLimit from 'p-limit'
import {z} from 'zod'
import {newError} from '../errors.ts'
import {parseJson} from '../json.ts'
import {type Place, passLogOn, stopWith} from '../process.ts'

const ENTRY = join(import.meta.dirname, `../main${extname(import.meta.filename)}`)
const TIMEOUT_MS = 60_000
/** Each reads on a core of its own, beside a sync: who asks for more waits. */
const inTurn = pLimit(2)
const MOST_PRINTED = 64 * 1024 * 1024

/**
 * What a command of loantape says, carried out in a process of its own: it may open the warehouse and read tapes, which takes as
 * long as it takes.
 *
 * @param env the command's environment; by default this process's
 * @throws UnexpectedError `COMMAND_FAILED` with the command's own words
 */
export function askCommand<T>(
  schema: z.ZodType<T>,
  command: string,
  words: readonly string[],
  env?: Record<string, string>,
): Promise<T> {
  return inTurn(async () => {
    const child = start([command, '--json', ...words], 'ignore', {env})
    const timer = setTimeout(() => child.kill('SIGKILL'), TIMEOUT_MS)
    try {
      const {code, printed} = await readToEnd(child)
      const answer = parseJson(printed)
      if (code === 0) return schema.parse(answer)
      const failed = z.object({error: z.object({message: z.string()})}).safeParse(answer)
      throw newError(
        'COMMAND_FAILED',
        failed.data?.error.message ??
          `\`loantape ${command}\` was stopped: it took too long or said too much.`,
      )
    } finally {
      clearTimeout(timer)
    }
  })
}

/** How a command ended, and its own words for people. */
export interface CommandEnd {
  /** Null of one that was killed. */
  exitCode: number | null
  words: string
}

/**
 * Carries a command of loantape out to its end, however long that takes; its log goes where ours goes.
 *
 * @param signal asks it to stop; what is stored by then is kept
 */
export async function carryOutCommand(
  args: readonly string[],
  {signal, ...place}: {signal: AbortSignal} & SomePlace,
): Promise<CommandEnd> {
  const child = start(args, 'pipe', place)
  const readLog = passLogOn(child)
  using _stopping = stopWith(child, signal)
  const {code, printed} = await readToEnd(child)
  if (code === 0) return {exitCode: code, words: printed.trim()}
  const lines = readLog().trim().split('\n')
  const last = lines.findLastIndex((line) => line.startsWith(COMPLAINT))
  const complaint = lines.slice(last).join('\n').slice(COMPLAINT.length)
  return {exitCode: code, words: last === -1 ? 'It ended without a word; see the log.' : complaint}
}

type SomePlace = {[part in keyof Place]?: Place[part] | undefined}

const COMPLAINT = 'loantape: '

const start = (args: readonly string[], stderr: 'ignore' | 'pipe', place: SomePlace) =>
  fork(ENTRY, args, {stdio: ['ignore', 'pipe', stderr, 'ipc'], ...place})

async function readToEnd(child: ChildProcess): Promise<{code: number | null; printed: string}> {
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', resolve)
  })
  const chunks: Buffer[] = []
  let length = 0
  child.stdout?.on('data', (chunk: Buffer) => {
    length += chunk.length
    if (length <= MOST_PRINTED) chunks.push(chunk)
    else child.kill('SIGKILL')
  })
  return {code: await ended, printed: Buffer.concat(chunks).toString()}
}
