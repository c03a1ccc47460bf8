import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

/** Opens a connection to a server. Its errors are not reported.
 * @param origin  such as http://127.0.0.1:8088 */
export async function connectTo(origin: string): Promise<Socket> {
  const { hostname, port } = new URL(origin);
  const socket = connect(Number(port), hostname);
  await once(socket, 'connect');
  socket.on('error', () => undefined);
  return socket;
}

/** Waits until a connection is closed, by an error too. */
export function isClosed(socket: Socket): Promise<void> {
  return new Promise((resolve) => socket.once('close', () => resolve()));
}

/** Sends bytes as they are on a connection of their own, and waits until the server ends it.
 * @param text  Latin-1
 * @returns what came back */
export async function sendRaw(origin: string, text: string): Promise<string> {
  const socket = await connectTo(origin);
  let reply = '';
  socket.on('data', (data: Buffer) => (reply += data.toString('latin1')));
  socket.write(text, 'latin1');
  await isClosed(socket);
  return reply;
}

/** The status of each answer in what came back. */
export function statusesIn(reply: string): readonly number[] {
  return [...reply.matchAll(/^HTTP\/1\.1 (\d{3}) /gm)].map(([, status]) => Number(status));
}
