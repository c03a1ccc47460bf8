/* Follows the Dockerfile without docker, in a folder with one folder for each stage: copies what
 * COPY copies, out of what git has or would add and .dockerignore lets in, runs the RUN steps of
 * npm, npx and node, and has sh check the syntax of the others. Node and Redis are those on PATH.
 */
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { imageVariables } from './image-variables.mjs';
import { fail, root } from './setup.mjs';

const print = (line) => process.stderr.write(`${line}\n`);

/** Only what is named: what this machine sets for npm start or in CI is not in the image. */
const { PATH, HOME } = process.env;

/** A pattern of .dockerignore as a regular expression for a path or a folder above it. */
function patternOf(line) {
  const source = line
    .replace(/^\/|\/$/g, '')
    .replace(/[.+^${}()|[\]\\]/g, '\\$&')
    .replace(/\*\*\/?|\*|\?/g, (each) => (each[1] ? '.*' : each === '*' ? '[^/]*' : '[^/]'));
  return new RegExp(`^${source}(/|$)`);
}

/** Files of the build context: the last line of .dockerignore that matches decides. */
function readContext() {
  const lines = readFileSync(join(root, '.dockerignore'), 'utf8').split('\n');
  const rules = lines
    .map((line) => line.trim())
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => ({ isIn: line.startsWith('!'), pattern: patternOf(line.replace(/^!/, '')) }));
  const git = ['ls-files', '-z', '--cached', '--others', '--exclude-standard'];
  const { status, stdout } = spawnSync('git', git, { cwd: root, encoding: 'utf8', maxBuffer: 1e8 });
  if (status !== 0) fail('git ls-files failed: run this in a checkout');
  return stdout
    .split('\0')
    .filter((file) => file !== '' && existsSync(join(root, file)))
    .filter((file) => rules.findLast(({ pattern }) => pattern.test(file))?.isIn ?? true);
}

/** The instructions, each with the line where it begins. */
function readInstructions() {
  const instructions = [];
  let open;
  for (const [index, line] of readFileSync(join(root, 'Dockerfile'), 'utf8')
    .split('\n')
    .entries()) {
    if (line.trim() === '' || line.startsWith('#')) continue;
    open ??= { where: `Dockerfile:${index + 1}`, text: '' };
    open.text += line.replace(/\\$/, '');
    if (line.endsWith('\\')) continue;
    const [name, ...words] = open.text.trim().split(/\s+/);
    instructions.push({ ...open, name, words, text: open.text.trim().slice(name.length).trim() });
    open = undefined;
  }
  return instructions;
}

const context = readContext();
const stages = new Map();
/** The path of a file of a stage on this machine. */
const pathIn = (stage, path) =>
  join(stage.root, path.startsWith('/') ? path : join(stage.workdir, path));

function begin(folder, { where, words }) {
  const [from, , name] = words.filter((word) => !word.startsWith('--'));
  const base = stages.get(from);
  const empty = { workdir: '/', env: {}, entrypoint: [], isOutside: true };
  const stage = { ...(base ?? empty), root: join(folder, name) };
  mkdirSync(stage.root);
  if (base) cpSync(base.root, stage.root, { recursive: true, verbatimSymlinks: true });
  stages.set(name, stage);
  print(`${where}: stage ${name}`);
  return stage;
}

function copy(stage, { where, words }) {
  stage.isOutside = false;
  const to = words.at(-1);
  const [, from] = /^--from=(.*)/.exec(words[0]) ?? [];
  if (from === undefined)
    for (const source of words.slice(0, -1)) copyFromContext(where, source, stage, to);
  else for (const path of words.slice(1, -1)) copyFromStage(where, { from, path }, stage, to);
}

function copyFromContext(where, source, stage, to) {
  const files = context.filter((file) => file === source || file.startsWith(`${source}/`));
  if (files.length === 0)
    fail(`${where}: COPY ${source}: not in the build context; see git status and .dockerignore`);
  const target = targetOf(join(root, source), stage, to);
  for (const file of files)
    cpSync(join(root, file), join(target, file.slice(source.length)), { recursive: true });
}

function copyFromStage(where, { from, path }, stage, to) {
  const source = pathIn(stages.get(from), path);
  // What comes from an image of others, which is not here: Node.
  if (!existsSync(source) && stages.get(from).isOutside) return;
  if (!existsSync(source)) fail(`${where}: COPY ${path}: the stage ${from} does not make it`);
  cpSync(source, targetOf(source, stage, to), { recursive: true, verbatimSymlinks: true });
}

/** Where COPY puts a file or folder; makes the folder above. */
function targetOf(path, stage, to) {
  const isInto = statSync(path).isFile() && to.endsWith('/');
  const target = pathIn(stage, isInto ? join(to, basename(path)) : to);
  mkdirSync(dirname(target), { recursive: true });
  return target;
}

function run(stage, { where, text }) {
  const isOurs = text.split('&&').every((command) => /^\s*(npm|npx|node)\s/.test(command));
  print(`${where}: RUN ${text}${isOurs ? '' : ' (syntax only)'}`);
  const cwd = pathIn(stage, '.');
  mkdirSync(cwd, { recursive: true });
  const { status } = spawnSync('sh', [isOurs ? '-ec' : '-nc', text], {
    cwd,
    env: { PATH, HOME, ...stage.env },
    stdio: ['ignore', 2, 2],
  });
  if (status !== 0) fail(`${where}: RUN ${text} failed: see its output above`);
}

function setVariables(stage, { text }) {
  for (const [name, value] of Object.entries(imageVariables(text)))
    stage.env[name] = value.startsWith('/') ? pathIn(stage, value) : value;
}

const handlers = {
  COPY: copy,
  RUN: run,
  WORKDIR: (stage, { text }) => (stage.workdir = text),
  ENV: setVariables,
  ENTRYPOINT: (stage, { text }) => (stage.entrypoint = JSON.parse(text)),
  CMD: () => undefined,
  LABEL: () => undefined,
};

/** Builds all stages in a folder.
 * @returns how to start the program of a stage with arguments */
export function followDockerfile(folder) {
  let stage;
  for (const instruction of readInstructions()) {
    if (instruction.name === 'FROM') stage = begin(folder, instruction);
    else if (handlers[instruction.name]) handlers[instruction.name](stage, instruction);
    else
      fail(`${instruction.where}: scripts/follow-dockerfile.mjs does not know ${instruction.name}`);
  }
  return (name, args) => commandOf(stages.get(name), folder, args);
}

function commandOf(stage, folder, args) {
  const [program, ...rest] = stage.entrypoint;
  const words = rest.map((each) => (each.startsWith('/') ? pathIn(stage, each) : each));
  const env = { PATH, TMPDIR: folder, ...stage.env };
  return { command: [program, ...words, ...args], options: { cwd: pathIn(stage, '.'), env } };
}
