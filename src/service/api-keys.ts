import {hash, randomBytes, timingSafeEqual} from 'node:crypto'
import {z} from 'zod'
import {newError} from '../errors.ts'
import {type Refusal, refuse} from './problem-reply.ts'
import {rowInstant, type ServiceDatabase} from './service-database.ts'

/** What a key may do: read with GET, write with the other methods; neither includes the other. */
export const SCOPES = ['read', 'write'] as const

/** A scope of {@link SCOPES}. */
export type Scope = (typeof SCOPES)[number]

/** Who asks: the owner names rate-limit bucket and idempotency keys. */
export interface Caller {
  owner: string
  scopes: readonly Scope[]
}

const KEY_FORM = /^sk_(?:live|test)_[A-Za-z0-9_-]+$/
/** Prefix, id, secret. */
const STORED_FORM = /^(sk_(?:live|test)_([0-9a-f]{12}))([0-9a-f]{48})$/

const scopesOfText = z
  .string()
  .transform((text) => text.split(','))
  .pipe(z.array(z.enum(SCOPES)))

/** A key as it may be shown. */
export type ApiKey = z.output<typeof keyRow>
const keyRow = z.object({
  id: z.string(),
  name: z.string(),
  /** `sk_live_` or `sk_test_` and the key's id: what comes before the secret. */
  prefix: z.string(),
  scopes: scopesOfText,
  created_at: rowInstant,
  revoked_at: rowInstant.nullable(),
})

const digestRow = z.object({id: z.string(), digest: z.instanceof(Uint8Array), scopes: scopesOfText})

function digestOf(text: string): Buffer {
  return hash('sha256', text, 'buffer')
}

/**
 * Makes a key; it is returned once, kept is its SHA-256: 192 random bits need no slow hash.
 *
 * @param options.now ms since the epoch
 */
export function createApiKey(
  database: ServiceDatabase,
  options: {kind: 'live' | 'test'; name: string; scopes: readonly Scope[]; now: number},
): {id: string; key: string} {
  const id = randomBytes(6).toString('hex')
  const prefix = `sk_${options.kind}_${id}`
  const key = `${prefix}${randomBytes(24).toString('hex')}`
  database.insert('api_key', {
    id,
    name: options.name,
    prefix,
    digest: digestOf(key),
    scopes: [...new Set(options.scopes)].join(','),
    created_at: options.now,
  })
  return {id, key}
}

/** Every key ever made, oldest first. */
export function listApiKeys(database: ServiceDatabase): ApiKey[] {
  return database.all(keyRow, 'select * from api_key order by created_at, id')
}

/** Revokes a key, at once and for good; false when there is no such key or it was revoked before. */
export function revokeApiKey(database: ServiceDatabase, id: string, now: number): boolean {
  return database.run('update api_key set revoked_at = ? where id = ? and revoked_at is null', now, id) > 0
}

function refuseKey(code: 'unauthorized' | 'invalid_token', challenge: string): Refusal {
  const detail = 'Send an API key: Authorization: Bearer sk_live_… or sk_test_….'
  return refuse(code, {detail, headers: {'WWW-Authenticate': challenge}})
}

/**
 * Creates the check of an `Authorization` header against the keys given and those of the database.
 *
 * A key of the database is found by the id in it, which is no secret; digests are compared in constant time,
 * against one of nothing when there is no such id.
 *
 * @param apiKeys `sk_live_…` or `sk_test_…`, at least one, with every scope
 * @throws ConfigError when a key has another form; the check itself throws a Refusal (401)
 */
export function createKeyCheck(
  apiKeys: readonly string[],
  database: ServiceDatabase,
): (authorization: string | undefined) => Caller {
  if (apiKeys.length === 0 || !apiKeys.every((key) => KEY_FORM.test(key)))
    throw newError(
      'USAGE',
      'An API key of the service is missing or has the wrong form: expected sk_live_… or sk_test_….',
      {next: 'Give at least one key that begins with sk_test_.'},
    )
  const digests = apiKeys.map(digestOf)
  const noDigest = digestOf('')

  function findStored(token: string, sent: Buffer): Caller | undefined {
    const id = STORED_FORM.exec(token)?.[2] ?? ''
    const stored = database.get(digestRow, 'select * from api_key where id = ? and revoked_at is null', id)
    const isSame = timingSafeEqual(stored?.digest ?? noDigest, sent)
    return stored && isSame ? {owner: stored.id, scopes: stored.scopes} : undefined
  }

  return (authorization) => {
    const token = /^Bearer +(.*)$/i.exec(authorization ?? '')?.[1]
    if (token === undefined) throw refuseKey('unauthorized', 'Bearer realm="deals"')
    const sent = digestOf(token)
    // Every digest is compared, so that the time says nothing about which one matched.
    const matches = digests.filter((digest) => timingSafeEqual(digest, sent))
    const caller =
      matches.length > 0 ? {owner: sent.toString('hex'), scopes: SCOPES} : findStored(token, sent)
    if (!caller) throw refuseKey('invalid_token', 'Bearer realm="deals", error="invalid_token"')
    return caller
  }
}

/** Holds a request against the caller's scopes. @throws Refusal (403) by RFC 6750 */
export function checkScope(caller: Caller, scope: Scope): void {
  if (caller.scopes.includes(scope)) return
  throw refuse('insufficient_scope', {
    detail: `The request needs the scope ${scope}.`,
    headers: {'WWW-Authenticate': `Bearer realm="deals", error="insufficient_scope", scope="${scope}"`},
  })
}
