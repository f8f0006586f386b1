-- A file of conversations as version 1 of its tables has it.
CREATE TABLE conversation (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  title TEXT NOT NULL DEFAULT '',
  named INTEGER NOT NULL DEFAULT 0,
  model TEXT NOT NULL DEFAULT '',
  system TEXT NOT NULL DEFAULT '',
  params TEXT NOT NULL DEFAULT '{}',
  created REAL NOT NULL,
  changed REAL NOT NULL,
  deleted_by TEXT
);
CREATE INDEX conversation_changed ON conversation (changed);
CREATE TABLE turn (
  id INTEGER PRIMARY KEY,
  conversation INTEGER NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
  number INTEGER NOT NULL,
  state TEXT NOT NULL,
  owner TEXT NOT NULL DEFAULT '',
  indexed INTEGER NOT NULL DEFAULT 0,
  at REAL NOT NULL,
  model TEXT NOT NULL DEFAULT '',
  note TEXT NOT NULL DEFAULT '',
  question TEXT NOT NULL,
  answer TEXT NOT NULL DEFAULT '',
  UNIQUE (conversation, number)
);
CREATE INDEX turn_streaming ON turn (id) WHERE state = 'streaming';
CREATE INDEX turn_unindexed ON turn (id) WHERE indexed = 0;
CREATE TABLE setting (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE VIRTUAL TABLE turn_words USING fts5(
  question, answer, content='turn', content_rowid='id', tokenize='unicode61 remove_diacritics 2'
);
INSERT INTO conversation VALUES
  (1, 'Why is the sky blue?', 0, 'tiny@ab', 'Be brief.', '{"temperature":0.5}', 1.0, 2.0, NULL);
INSERT INTO turn VALUES
  (1, 1, 0, 'done', '', 1, 1.0, 'tiny@ab', '3 tokens', 'Why is the sky blue?', 'Because.'),
  (2, 1, 1, 'streaming', '0011223344556677', 0, 2.0, 'tiny@ab', '', 'And red?', 'Dus');
INSERT INTO turn_words (rowid, question, answer) SELECT id, question, answer FROM turn WHERE id = 1;
PRAGMA user_version = 1;
