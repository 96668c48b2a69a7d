import {Pool} from 'undici'
import {reportCost} from './cost.ts'

/** The lower bound for any client: reads one page after the other, parses it and throws it away. */
const [, , url = ''] = process.argv
const pool = new Pool(url)
let cursor: string | null = null
do {
  const query: string = cursor === null ? '' : `&cursor=${cursor}`
  const {body} = await pool.request({path: `/v1/deals?limit=100${query}`, method: 'GET'})
  const page = (await body.json()) as {next_cursor: string | null}
  cursor = page.next_cursor
} while (cursor !== null)
await pool.close()
reportCost({})
