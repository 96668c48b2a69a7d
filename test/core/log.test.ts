import {expect, test} from 'vitest'
import {createLog, type Log, scrubSecrets} from '../../src/core/log.ts'

function linesOf(write: (log: Log) => void): {text: string; lines: Record<string, unknown>[]} {
  let text = ''
  const destination = {
    write(line: string) {
      text += line
    },
  }
  write(createLog({level: 'debug'}, destination))
  const lines = text.trim().split('\n')
  return {text, lines: lines.map((line) => JSON.parse(line))}
}

test.each([
  ['an API key', 'key sk_live_abc123 refused', 'key sk_live_*** refused'],
  ['another kind of API key', 'key sk_abc123 refused', 'key sk_*** refused'],
  ['a webhook secret', 'whsec_ab+/c=', 'whsec_***'],
  ['a bearer token', 'Authorization: Bearer abc.def', 'Authorization: Bearer ***'],
  ['a bearer token in another case', 'authorization: bearer abc', 'authorization: Bearer ***'],
  ['a URL password', 'postgres://user:hunter2@db/x', 'postgres://user:***@db/x'],
  ['a URL password with an @', 'postgres://user:hunt@er2@db/x', 'postgres://user:***@db/x'],
  ['a URL password without a user', 'redis://:hunter2@db', 'redis://:***@db'],
  ['a URL user without a password', 'https://abc123@db/x', 'https://***@db/x'],
  ['the query of a URL', `at 'https://db/x?key=abc123&b=1': no`, `at 'https://db/x?***': no`],
  ['the fragment of a URL', '"https://db/x#abc123"', '"https://db/x?***"'],
  ['the query of a path', 'GET /deals?limit=5&key=abc123 failed', 'GET /deals?limit=***&key=*** failed'],
  ['a query of other signs', '/x?$top=5&a%20[]=abc123;c=abc123#d=abc123', '/x?$top=***&a%20[]=***#d=***'],
  ['two secrets', 'sk_test_a, sk_test_b', 'sk_test_***, sk_test_***'],
])('%s is masked', (_, text, masked) => {
  expect(scrubSecrets(text)).toBe(masked)
})

test('what only looks like a secret stays', () => {
  for (const text of [
    ...['the task_live_view', 'risk_score', 'http://localhost:8080/v1', 'a@b.example'],
    ...['expected sk_live_… or sk_test_….', 'Is x=1? Then y=2.', 'GET /deals?cursor'],
  ])
    expect(scrubSecrets(text)).toBe(text)
})

test('words of a million letters hold nobody up', () => {
  for (const part of ['x', 'x?', '://', '://x', '/x?y', '&', 'sk_', 'Bearer ', '%', '://:@'])
    expect(scrubSecrets(part.repeat(1_000_000 / part.length)).length).toBeGreaterThan(0)
})

test('a secret in an error, its cause and its stack is masked', () => {
  const cause = new Error('connect postgres://user:hunter2@db failed')
  const {text} = linesOf((log) => log.error({err: new Error('Bearer abc123', {cause})}, 'failed'))
  expect(text).not.toContain('abc123')
  expect(text).not.toContain('hunter2')
})

test('an error is its name, code, message and stack, without what else it holds', () => {
  const err = Object.assign(new TypeError('no'), {code: '23514', detail: 'row contains (Ann)', cause: 'why'})
  const {lines} = linesOf((log) => {
    log.error({err}, 'failed')
    log.error({err: 'thrown'}, 'failed')
  })
  const stack = expect.stringContaining('log.test.ts')
  expect(lines[0]?.err).toEqual({type: 'TypeError', code: '23514', message: 'no', stack})
  expect(lines[1]?.err).toBe('thrown')
})

test('a secret in a message, even in a later line, or in an allowed field is masked, and the line stays JSON', () => {
  const {text} = linesOf((log) => {
    log.info('headers:\nsk_live_abc123\twhsec_abc123\nBearer abc123')
    log.info({reason: {headers: [{authorization: 'Bearer abc123'}]}}, 'sent')
  })
  expect(text).not.toContain('abc123')
  const {lines} = linesOf((log) => log.info('sent "Bearer abc123" and "sk_live_abc123"'))
  expect(lines).toMatchObject([{msg: 'sent "Bearer ***" and "sk_live_***"'}])
})

test('unlisted fields are dropped, and lines below the level are not written', () => {
  const written: string[] = []
  createLog({level: 'warn'}, {write: (line) => written.push(line)}).info('read')
  expect(written).toEqual([])
  const fields = {body: '{"loan_amount":1}', property_address: '1 Main St', pages: 3}
  const {lines} = linesOf((log) => log.info(fields, 'read'))
  expect(lines[0]).toEqual({level: 'info', time: expect.any(String), pages: 3, msg: 'read'})
})
