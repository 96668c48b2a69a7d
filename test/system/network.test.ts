import {execFileSync} from 'node:child_process'
import {readFileSync, writeFileSync} from 'node:fs'
import {createServer} from 'node:http'
import {createServer as createTlsServer} from 'node:https'
import {type AddressInfo, connect, type Server} from 'node:net'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {createFolder} from '../support/data.ts'
import {someDeals} from '../support/lab.ts'
import {useLab, useShared} from '../support/set-up.ts'

const lab = await useLab({deals: someDeals(5)})
const {folder} = await useShared(createFolder())
const at = (name: string) => join(folder.root, name)

/** A name that only the proxy can resolve. */
const HOST = 'deals.company.test'

/** Makes a key and a certificate, signed by the company or, without a signer, by itself. */
function makeCertificate(name: string, subject: string, ...more: string[]): void {
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', at(`${name}.key`)]
  const about = ['-subj', `/CN=${subject}`, '-days', '2', '-out', at(`${name}.pem`)]
  execFileSync('openssl', ['req', '-x509', ...key, ...about, ...more], {stdio: 'ignore'})
}

makeCertificate('ca', 'Company')
const signed = ['-CA', at('ca.pem'), '-CAkey', at('ca.key'), '-addext', 'basicConstraints=critical,CA:FALSE']
makeCertificate('server', HOST, ...signed, '-addext', `subjectAltName=DNS:${HOST}`)
makeCertificate('client', 'loantape', ...signed)
const read = (name: string) => readFileSync(at(name))
writeFileSync(at('both.pem'), Buffer.concat([read('client.pem'), read('client.key')]))

async function listen(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  lab.beside.defer(() => void server.close())
  return (server.address() as AddressInfo).port
}

/** The service behind TLS that requests a client certificate. */
const guarded = await listen(
  createTlsServer(
    {key: read('server.key'), cert: read('server.pem'), ca: read('ca.pem'), requestCert: true},
    async ({url = '', headers: {authorization = ''}}, response) => {
      const answer = await fetch(`${new URL(lab.service.url).origin}${url}`, {headers: {authorization}})
      response.writeHead(answer.status, {'content-type': 'application/json'}).end(await answer.text())
    },
  ),
)
const asked: string[] = []
const proxy = await listen(
  createServer().on('connect', ({url = ''}, socket, head) => {
    asked.push(url)
    const there = connect(guarded, '127.0.0.1', () => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n')
      there.write(head)
      there.pipe(socket).pipe(there)
    })
    for (const end of [socket, there]) end.on('error', () => undefined)
  }),
)

const env = {
  LOANTAPE_BASE_URL: `https://${HOST}/v1`,
  LOANTAPE_API_KEY: '',
  LOANTAPE_API_KEY_COMMAND: `echo ${lab.env.LOANTAPE_API_KEY}`,
  LOANTAPE_CLIENT_CERT_FILE: at('both.pem'),
  LOANTAPE_DETAIL: 'off',
  HTTPS_PROXY: `http://127.0.0.1:${proxy}`,
  NODE_EXTRA_CA_CERTS: at('ca.pem'),
}

test('a source behind the proxy of a company, which signs its certificates and asks for ours, is synced', async () => {
  const {code, stdout, stderr} = await lab.start(['sync', '--json'], env).ended
  expect(code, stderr).toBe(0)
  expect(JSON.parse(stdout)).toMatchObject({changes: {created: 5}})
  expect(new Set(asked)).toEqual(new Set([`${HOST}:443`]))
})

test.each([
  ['a certificate of ours', {LOANTAPE_CLIENT_CERT_FILE: ''}],
  ['the certificate of the company', {NODE_EXTRA_CA_CERTS: ''}],
])('without %s nothing is read, and the run ends as for a source that is not there', async (_, changes) => {
  const requests = lab.service.requests.count
  const {code, stderr} = await lab.start(['sync', '--json'], {...env, ...changes}).ended
  expect([code, /\[([A-Z_]+)\]\s*$/.exec(stderr)?.[1]]).toEqual([6, 'SOURCE_UNREACHABLE'])
  expect(lab.service.requests.count).toBe(requests)
})
