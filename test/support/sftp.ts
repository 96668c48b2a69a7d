import {createHash, generateKeyPairSync, type KeyObject} from 'node:crypto'
import {once} from 'node:events'
import fs from 'node:fs'
import {type AddressInfo, Server} from 'node:net'
import {join} from 'node:path'
import ssh2 from 'ssh2'

const {OPEN_MODE, STATUS_CODE} = ssh2.utils.sftp

export type SftpServer = Awaited<ReturnType<typeof startSftp>>

/** One key for all servers of a process: making it takes longer than most tests. */
let hostKey: KeyObject | undefined

/** Makes a key as OpenSSH does. Tries again if it cannot be read: about one in a hundred of ssh2's keys cannot. */
export function makeKey(lock?: {passphrase: string; cipher: string; rounds: number}): {
  private: string
  public: string
} {
  const pair = ssh2.utils.generateKeyPairSync('ed25519', lock ?? {})
  return ssh2.utils.parseKey(pair.private, lock?.passphrase) instanceof Error ? makeKey(lock) : pair
}

/** Starts a server that admits any user with this password or this public key. */
export async function startSftp(root: string, access: {password?: string; publicKey?: string}) {
  hostKey ??= generateKeyPairSync('rsa', {modulusLength: 2048}).privateKey
  const pem = hostKey.export({type: 'pkcs1', format: 'pem'}).toString()
  const parsed = ssh2.utils.parseKey(pem)
  if (parsed instanceof Error) throw parsed
  const allowed = access.publicKey === undefined ? undefined : ssh2.utils.parseKey(access.publicKey)
  const clients = new Set<ssh2.Connection>()
  const server = new ssh2.Server({hostKeys: [pem]}, (client) => {
    clients.add(client)
    client.on('error', () => undefined)
    client.on('close', () => clients.delete(client))
    client.on('authentication', (context) => {
      const isPassword = context.method === 'password' && context.password === access.password
      const isKey =
        context.method === 'publickey' &&
        allowed !== undefined &&
        !(allowed instanceof Error) &&
        context.key.data.equals(allowed.getPublicSSH()) &&
        (!context.signature ||
          allowed.verify(context.blob ?? Buffer.of(), context.signature, context.hashAlgo))
      if (context.username === 'loantape' && (isPassword || isKey)) context.accept()
      else context.reject(['password', 'publickey'])
    })
    client.on('ready', () => {
      result.logins += 1
      client.on('session', (accept) => {
        accept().on('sftp', (acceptSftp) => serve(acceptSftp(), client))
      })
    })
  })
  // Without this, each answer waits for the acknowledgment of the previous one.
  const sockets: unknown = Reflect.get(server, '_srv')
  if (sockets instanceof Server) sockets.on('connection', (socket) => socket.setNoDelay(true))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')

  function serve(sftp: ssh2.SFTPWrapper, client: ssh2.Connection): void {
    // The types cover only the client's side; the server's events are named as in the protocol.
    const stream = sftp as unknown as {
      on(event: string, listener: (id: number, ...args: never[]) => void): void
      status(id: number, code: number, words?: string): void
      handle(id: number, handle: Buffer): void
      attrs(id: number, attrs: object): void
      name(id: number, names: object[]): void
    }
    const pathOf = (path: string) => join(root, path)
    const statusOf = (error: unknown) => {
      const {code} = error as NodeJS.ErrnoException
      if (code === 'ENOENT') return STATUS_CODE.NO_SUCH_FILE
      return code === 'EACCES' ? STATUS_CODE.PERMISSION_DENIED : STATUS_CODE.FAILURE
    }
    /** Answers requests of one kind: `work` may send the answer itself; otherwise it is OK, or the status of the error thrown. */
    const on = (event: string, work: (id: number, ...args: never[]) => unknown) =>
      stream.on(event, (id, ...args) => {
        if (result.isMute) return
        try {
          if (work(id, ...args) !== 'answered') stream.status(id, STATUS_CODE.OK)
        } catch (error) {
          stream.status(id, statusOf(error))
        }
      })
    const open = new Map<string, {fd: number; path: string}>()
    const stat = (id: number, path: string) => {
      const {size, mode, uid, gid, atimeMs, mtimeMs} = fs.statSync(pathOf(path))
      stream.attrs(id, {size, mode, uid, gid, atime: atimeMs / 1000, mtime: mtimeMs / 1000})
      if (result.isSwept && path.endsWith('.part')) fs.rmSync(pathOf(path))
      return 'answered'
    }
    on('REALPATH', (id, path: string) => {
      stream.name(id, [{filename: path, longname: path, attrs: {}}])
      return 'answered'
    })
    on('STAT', stat)
    on('LSTAT', stat)
    on('MKDIR', (_, path: string) => {
      if (result.isFull) throw new Error('no space')
      fs.mkdirSync(pathOf(path))
    })
    on('REMOVE', (_, path: string) => fs.rmSync(pathOf(path)))
    on('RENAME', (_, from: string, to: string) => {
      if (fs.existsSync(pathOf(to))) throw new Error('RENAME never replaces a file')
      fs.renameSync(pathOf(from), pathOf(to))
      result.renamed.push(to)
    })
    on('OPEN', (id, path: string, flags: number) => {
      if (result.isClosed) {
        // Servers put the status into words of their own.
        stream.status(id, STATUS_CODE.PERMISSION_DENIED, 'Access is not allowed')
        return 'answered'
      }
      const fd = fs.openSync(pathOf(path), flags & OPEN_MODE.WRITE ? 'w' : 'r')
      open.set(String(fd), {fd, path})
      stream.handle(id, Buffer.from(String(fd)))
      return 'answered'
    })
    on('WRITE', (_, handle: Buffer, offset: number, data: Buffer) => {
      const file = open.get(handle.toString())
      if (!file) throw new Error('no such handle')
      const what = result.onWrite(file.path)
      if (what === 'full') throw new Error('no space')
      fs.writeSync(file.fd, data, 0, what === 'go on' ? data.length : data.length >> 1, offset)
      if (what !== 'break') return undefined
      client.end()
      return 'answered'
    })
    on('FSETSTAT', (_, handle: Buffer, {mode}: {mode?: number}) => {
      const file = open.get(handle.toString())
      if (file && mode !== undefined) fs.fchmodSync(file.fd, mode)
    })
    on('SETSTAT', () => undefined)
    on('CLOSE', (_, handle: Buffer) => {
      const file = open.get(handle.toString())
      if (file) fs.closeSync(file.fd)
      open.delete(handle.toString())
    })
  }

  const {port} = server.address() as AddressInfo
  const result = {
    port,
    /** `SHA256:…` */
    hostKey: `SHA256:${createHash('sha256').update(parsed.getPublicSSH()).digest('base64').replace(/=+$/, '')}`,
    /** Called on each write; a test may let it break the connection, fail for lack of space, or lose half of it. */
    onWrite: (_: string): 'go on' | 'break' | 'full' | 'lose' => 'go on',
    /** Whether to fail each new folder for lack of space. */
    isFull: false,
    /** Whether to refuse to open any file. */
    isClosed: false,
    /** Whether somebody there removes each `.part` once it was looked at. */
    isSwept: false,
    /** Whether to leave all requests of logged-in users unanswered. */
    isMute: false,
    renamed: [] as string[],
    logins: 0,
    async [Symbol.asyncDispose]() {
      for (const client of clients) client.end()
      server.close()
      await once(server, 'close')
    },
  }
  return result
}
