import {spawn} from 'node:child_process'
import {once} from 'node:events'
import {createInterface} from 'node:readline'
import {fileURLToPath} from 'node:url'
import {z} from 'zod'
import type {ProofRequest, Proved} from './proof.ts'

const CASES = fileURLToPath(new URL('./nth-file-cases.ts', import.meta.url))

const lineSchema = z.union([
  z.object({run: z.number()}),
  z.object({figures: z.record(z.string(), z.number())}),
])

/**
 * Makes the nth file operation of a sync and its exports fail, for every n, with EIO and ENOSPC, once and permanently, in a new
 * folder and in a filled one. The run ends with a documented code and a clear message, nothing under a final name is torn, the
 * warehouse is sound, and the next run reaches the same result as an undisturbed one.
 *
 * A run is one such case, in an order drawn from the seed; there are no more runs than cases. All of them run in one separate
 * process, because the functions of `node:fs` are replaced there.
 */
export async function proveNthFile(request: ProofRequest & {tables?: string | undefined}): Promise<Proved> {
  const {onRun, ...asked} = request
  const child = spawn(process.execPath, [CASES, JSON.stringify(asked)], {
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const closed = once(child, 'close')
  let stderr = ''
  child.stderr.on('data', (chunk: Buffer) => {
    stderr += chunk.toString()
  })
  let proved: Proved | undefined
  for await (const line of createInterface({input: child.stdout})) {
    const said = lineSchema.parse(JSON.parse(line))
    if ('run' in said) onRun?.(said.run)
    else proved = said
  }
  if (proved) return proved
  const [code, signal]: unknown[] = await closed
  throw new Error(`ended with ${signal ?? code}: ${stderr}`)
}
