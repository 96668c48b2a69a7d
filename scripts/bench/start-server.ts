import {type ChildProcess, fork} from 'node:child_process'
import {once} from 'node:events'
import {join} from 'node:path'
import {z} from 'zod'

/** Starts the page server in a process of its own; whoever started it kills it. */
export async function startServer(
  deals: number,
  delayMs: number,
): Promise<{server: ChildProcess; url: string}> {
  const server = fork(join(import.meta.dirname, 'page-server.ts'), [String(deals), String(delayMs)])
  const [message] = await once(server, 'message')
  return {server, url: z.object({url: z.string()}).parse(message).url}
}
