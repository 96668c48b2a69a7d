import {Graph, layout} from '@dagrejs/dagre'
import {type Html, html} from './html.ts'

/** A table and what it is built from. */
export interface GraphNode {
  /** `core.deal` */
  name: string
  /** Whether a model makes it; seeds and raw tables are given. */
  isModel: boolean
  reads: readonly string[]
}

const CHARACTER_WIDTH = 7.3
const NODE_HEIGHT = 24

/** The tables from left to right, each right of what it is built from; nodes are links to `#<name>`. */
export function renderModelGraph(nodes: readonly GraphNode[]): Html {
  const graph = new Graph()
  graph.setGraph({rankdir: 'LR', nodesep: 12, edgesep: 8, ranksep: 48, marginx: 4, marginy: 20})
  graph.setDefaultEdgeLabel(() => ({}))
  for (const {name} of nodes) {
    graph.setNode(name, {width: Math.round(name.length * CHARACTER_WIDTH) + 18, height: NODE_HEIGHT})
  }
  const edges = nodes.flatMap(({name, reads}) =>
    reads.filter((read) => graph.hasNode(read)).map((read) => ({from: read, to: name})),
  )
  for (const {from, to} of edges) graph.setEdge(from, to)
  layout(graph)
  const {width = 0, height = 0} = graph.graph() as {width?: number; height?: number}
  return html`<div class="graph" id="graph"><svg viewBox="0 0 ${Math.ceil(width)} ${Math.ceil(height)}" style="max-width: ${Math.ceil(width)}px" role="group" aria-label="Tables and what they are built from">
${edges.map(({from, to}) => html`<path data-from="${from}" data-to="${to}" d="${drawEdge(graph, from, to)}"/>\n`)}${nodes.map((node) => renderNode(graph, node))}</svg></div>`
}

function renderNode(graph: Graph, {name, isModel}: GraphNode): Html {
  const {x, y, width, height} = boxOf(graph, name)
  const [schema = ''] = name.split('.')
  const left = (x - width / 2).toFixed(1)
  const top = (y - height / 2).toFixed(1)
  return html`<a href="#${name}"><g class="node ${isModel ? schema : 'given'}" data-name="${name}"><rect x="${left}" y="${top}" width="${width}" height="${height}" rx="4"/><text x="${x.toFixed(1)}" y="${(y + 4).toFixed(1)}" text-anchor="middle">${name}</text></g></a>\n`
}

interface Point {
  x: number
  y: number
}

const boxOf = (graph: Graph, name: string) => graph.node(name) as Point & {width: number; height: number}

/** How far an edge goes straight on before it bends. */
const STUB = 20

/** From the right of one node to the left of another, smoothly by way of the points that lead around those between. */
function drawEdge(graph: Graph, from: string, to: string): string {
  const [source, target] = [boxOf(graph, from), boxOf(graph, to)]
  const {points} = graph.edge(from, to) as {points: Point[]}
  const start = {x: source.x + source.width / 2, y: source.y}
  const end = {x: target.x - target.width / 2, y: target.y}
  // Neighbours have one point between them, which is room for a label.
  const around = points.length > 3 ? points.slice(1, -1) : []
  const bends = [{x: start.x + STUB, y: start.y}, ...around, {x: end.x - STUB, y: end.y}]
  const curves = bends.map((bend, index) => {
    const next = bends[index + 1]
    return `Q${at(bend)} ${at(next ? {x: (bend.x + next.x) / 2, y: (bend.y + next.y) / 2} : end)}`
  })
  return `M${at(start)}${curves.join('')}`
}

const at = ({x, y}: Point) => `${x.toFixed(1)},${y.toFixed(1)}`
