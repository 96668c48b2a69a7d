import {fork} from 'node:child_process'
import {extname, join} from 'node:path'
import {z} from 'zod'
import {newError} from '../errors.ts'
import {parseJson} from '../json.ts'

const ENTRY = join(import.meta.dirname, `../main${extname(import.meta.filename)}`)
const TIMEOUT_MS = 60_000
const MOST_PRINTED = 64 * 1024 * 1024

/**
 * What a command of loantape says, carried out in a process of its own: it may open the warehouse and read tapes, which takes as
 * long as it takes.
 *
 * @param env the command's environment; by default this process's
 * @throws UnexpectedError `COMMAND_FAILED` with the command's own words
 */
export async function askCommand<T>(
  schema: z.ZodType<T>,
  command: string,
  words: readonly string[],
  env?: Record<string, string>,
): Promise<T> {
  const child = fork(ENTRY, [command, '--json', ...words], {
    stdio: ['ignore', 'pipe', 'ignore', 'ipc'],
    ...(env && {env}),
  })
  const timer = setTimeout(() => child.kill('SIGKILL'), TIMEOUT_MS)
  try {
    const ended = new Promise<number | null>((resolve, reject) => {
      child.once('error', reject)
      child.once('close', resolve)
    })
    const chunks: Buffer[] = []
    let printed = 0
    child.stdout?.on('data', (chunk: Buffer) => {
      printed += chunk.length
      if (printed <= MOST_PRINTED) chunks.push(chunk)
      else child.kill('SIGKILL')
    })
    const code = await ended
    const answer = parseJson(Buffer.concat(chunks).toString())
    if (code === 0) return schema.parse(answer)
    const failed = z.object({error: z.object({message: z.string()})}).safeParse(answer)
    throw newError(
      'COMMAND_FAILED',
      failed.data?.error.message ?? `\`loantape ${command}\` was stopped: it took too long or said too much.`,
    )
  } finally {
    clearTimeout(timer)
  }
}
