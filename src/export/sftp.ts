import {hash} from 'node:crypto'
import {connect} from 'node:net'
import {posix} from 'node:path'
import SftpClient from 'ssh2-sftp-client'
import {codeOf, LoantapeError, messageOf, newError} from '../core/errors.ts'
import type {World} from '../core/types.ts'
import {type Carrier, failed, refused, unauthorised} from './carrier.ts'
import {readSecret, type SftpTarget} from './delivery-target.ts'

const CONNECT_MS = 20_000

/**
 * Connects to an SFTP server with the pinned host key; files are uploaded as `.part`, then renamed.
 *
 * @param folder of the batch, below the target's path
 */
export async function openSftp(
  target: SftpTarget,
  folder: string,
  {signal}: Pick<World, 'signal'>,
): Promise<Carrier> {
  const where = `sftp://${target.host}:${target.port}`
  const key = readSecret(target.private_key_file)
  const passphrase = readSecret(target.passphrase_file)
  const password = readSecret(target.password_file)
  if (key === undefined && password === undefined) {
    throw refused(where, 'neither private_key_file nor password_file is set')
  }
  // Without these the library prints events after the end.
  const client = new SftpClient('loantape', {
    error: () => undefined,
    end: () => undefined,
    close: () => undefined,
  })
  const socket = connect({host: target.host, port: target.port, noDelay: true})
  // Makes an upload fail at once, before it is renamed. A graceful end would wait for a hung server.
  const hangUp = () => void socket.destroy()
  signal.addEventListener('abort', hangUp, {once: true})
  let shown = ''
  try {
    await client.connect({
      sock: socket,
      username: target.user,
      readyTimeout: CONNECT_MS,
      keepaliveInterval: 10_000,
      ...(key !== undefined && {privateKey: key}),
      ...(passphrase !== undefined && {passphrase}),
      ...(password !== undefined && {password}),
      hostVerifier: (hostKey: Buffer) => {
        shown = `SHA256:${hash('sha256', hostKey, 'base64').replace(/=+$/, '')}`
        return shown === target.host_key
      },
    })
  } catch (error) {
    hangUp()
    if (shown !== '' && shown !== target.host_key) {
      const problem = `Target ${where} showed the host key ${shown}: expected ${target.host_key}.`
      throw newError('TARGET_HOST_KEY', problem)
    }
    throw explain(error, where, 'cannot be reached')
  }
  const dirs = new Set<string>()
  return {
    async put({name, path, bytes}) {
      const final = posix.join(target.path, folder, name)
      const part = `${final}.part`
      try {
        const dir = posix.dirname(final)
        if (!dirs.has(dir) && (await client.exists(dir)) === false) await client.mkdir(dir, true)
        dirs.add(dir)
        await client.fastPut(path, part)
        const {size} = await client.stat(part)
        if (size !== bytes) throw failed(where, `file '${name}' arrived with ${size} of ${bytes} bytes`)
        await rename(client, part, final)
      } catch (error) {
        throw error instanceof LoantapeError
          ? error
          : explain(error, where, `file '${name}' was not accepted`)
      }
    },
    async [Symbol.asyncDispose]() {
      signal.removeEventListener('abort', hangUp)
      hangUp()
    },
  }
}

/** Renames over an existing file: in one step if the server can, else after deleting it. */
async function rename(client: SftpClient, from: string, to: string): Promise<void> {
  try {
    await client.posixRename(from, to)
  } catch (error) {
    if ((await client.exists(from)) === false) throw error
    if (await client.exists(to)) await client.delete(to)
    await client.rename(from, to)
  }
}

function explain(error: unknown, where: string, what: string): LoantapeError {
  const words = messageOf(error)
  if (/authentication methods failed|permission denied \(publickey/i.test(words)) {
    return unauthorised(where, 'key or password is not accepted', error)
  }
  if (/cannot parse privatekey|encrypted .*key|passphrase/i.test(words)) {
    const expected = 'expected an OpenSSH or PEM key and its passphrase'
    return refused(where, `the private key cannot be read: ${expected}`, error)
  }
  if (/permission denied/i.test(words) || codeOf(error) === '3')
    return refused(where, `${what}: permission denied`, error)
  return failed(where, `${what} (${reasonOf(words)})`, error)
}

/** `fastPut: Failure Local: … Remote: …` in our words; a full disk is a bare failure (status 4). */
function reasonOf(words: string): string {
  const said = words.replace(/^(\w+: )+/, '').replace(/ (Local|Remote): .*| \/.*/s, '')
  return said === 'Failure' ? "the server says 'Failure', as for a full disk" : said
}
