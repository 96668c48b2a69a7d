import {
  AuthError,
  ConfigError,
  codeOf,
  DeferredError,
  LoantapeError,
  messageOf,
  UnexpectedError,
} from '../errors.ts'

/** Where the words of an error say the server is: `db.example.com:5432/reporting`, never user or password. */
export function describeServer(url: string): string {
  if (!URL.canParse(url)) return 'the server in LOANTAPE_POSTGRES_URL'
  const {hostname, port, pathname} = new URL(url)
  return `${hostname}:${port || '5432'}${pathname}`
}

const KEPT = 'Readers still see the release published before; nothing of this one is visible.'
const AGAIN = 'Run `loantape publish postgres` again when it is back.'

/** Anything thrown while publishing, in our words. Codes: PostgreSQL, appendix A. */
export function explainPostgres(error: unknown, server: string): LoantapeError {
  if (error instanceof LoantapeError) return error
  const code = codeOf(error)
  const words = messageOf(error).split('\n')[0] ?? ''
  const failure = {kept: KEPT, cause: error}
  if (/^(28P01|28000)$/.test(code) || /password must be a string/.test(words)) {
    return new AuthError({
      ...failure,
      code: 'POSTGRES_AUTH',
      problem: `PostgreSQL at ${server} refused user or password (${code}).`,
      next: 'Correct LOANTAPE_POSTGRES_URL, or the file that LOANTAPE_POSTGRES_URL_FILE names.',
    })
  }
  if (/does not support SSL/.test(words) || /CERT|UNABLE_TO_VERIFY|ERR_TLS|ERR_SSL/.test(code)) {
    return new ConfigError({
      ...failure,
      code: 'POSTGRES_TLS',
      problem: `PostgreSQL at ${server} cannot be trusted: ${words}.`,
      next: 'Correct sslmode or sslrootcert in LOANTAPE_POSTGRES_URL, or the certificate of the server.',
    })
  }
  if (/^(3D000|42501|42704)$/.test(code)) {
    return new ConfigError({
      ...failure,
      code: code === '42501' ? 'POSTGRES_PRIVILEGE' : 'POSTGRES_UNKNOWN_NAME',
      problem: `PostgreSQL at ${server} refused: ${words} (${code}).`,
      next:
        code === '42501'
          ? 'Grant the user CREATE on the database, or let it own the schemas core, mart and accounting.'
          : 'Create what is missing there, or correct LOANTAPE_POSTGRES_URL and LOANTAPE_POSTGRES_READER.',
    })
  }
  if (/^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|ETIMEDOUT|57P03)$/.test(code)) {
    return new DeferredError({
      ...failure,
      code: 'POSTGRES_UNREACHABLE',
      problem: `PostgreSQL at ${server} cannot be reached (${code}).`,
      next: AGAIN,
    })
  }
  if (
    /^(57P0.|08...|ECONNRESET|EPIPE)$/.test(code) ||
    /terminated|timeout expired|not queryable/.test(words)
  ) {
    return new DeferredError({
      ...failure,
      code: 'POSTGRES_LOST',
      problem: `The connection to PostgreSQL at ${server} was lost.`,
      next: AGAIN,
    })
  }
  return new UnexpectedError({
    ...failure,
    code: 'POSTGRES_FAILED',
    problem: `PostgreSQL at ${server} refused: ${words} (${code}).`,
    next: 'Mend what it names, then run `loantape publish postgres` again.',
  })
}
