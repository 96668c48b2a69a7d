import {spawn} from 'node:child_process'
import {join} from 'node:path'
import {text} from 'node:stream/consumers'
import {expect, test} from 'vitest'
import {ENDPOINTS} from '../../src/contract/endpoints.ts'
import {API_KEY, aDeal, startTestService} from '../service/client.ts'
import {createFolder} from '../support/data.ts'

const PROGRAM = join(import.meta.dirname, '../../node_modules/.cache/python/bin/schemathesis')
const CONFIG = join(import.meta.dirname, 'schemathesis.toml')

test('Schemathesis finds nothing in the service that its description does not mention', async () => {
  using data = createFolder()
  await using service = await startTestService({
    webhooks: {
      allowPrivate: true,
      lookup: (_name, _options, answer) => answer(null, [{address: '127.0.0.1', family: 4}]),
    },
  })
  service.store.insert(Array.from({length: 20}, (_, index) => aDeal(index)))
  const url = service.url.replace('/v1', '/openapi.json')
  const args = ['--config-file', CONFIG, 'run', url, '-H', `Authorization: Bearer ${API_KEY}`]
  const env = {...process.env, HYPOTHESIS_STORAGE_DIRECTORY: data.folder.root}
  const child = spawn(PROGRAM, args, {cwd: import.meta.dirname, env, stdio: ['ignore', 'pipe', 'inherit']})
  const ended = new Promise((resolve, reject) => child.on('error', reject).on('close', resolve))
  const [told, code] = await Promise.all([text(child.stdout), ended])
  expect(code, told).toBe(0)
  expect(told).toMatch(new RegExp(`Tested: ${Object.keys(ENDPOINTS).length}\\b`))
})
